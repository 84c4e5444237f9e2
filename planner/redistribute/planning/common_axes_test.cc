#include "planner/redistribute/planning/common_axes.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;

Mesh MeshOf(absl::string_view text) { return ParseMesh(text).value(); }

std::vector<int64_t> Sizes(const std::vector<Axis>& axes) {
  std::vector<int64_t> sizes;
  for (const Axis& axis : axes) sizes.push_back(axis.size);
  return sizes;
}

std::vector<std::string> Names(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  return names;
}

std::vector<int32_t> AxesOf(const std::vector<SubAxis>& parts) {
  std::vector<int32_t> axes;
  for (const SubAxis& part : parts) axes.push_back(part.axis);
  return axes;
}

TEST(CommonAxes, AnAxisIsThePartsOfTheOtherMesh) {
  const auto common =
      FindCommonAxes(MeshOf("dp=8 on a.0-3,b.0-3"), MeshOf("data=2,model=4 on a.0-3,b.0-3"));
  ASSERT_TRUE(common.has_value());
  EXPECT_THAT(Sizes(common->axes), ElementsAre(2, 4));
  EXPECT_THAT(AxesOf(common->of_source[0]), ElementsAre(0, 1));
  EXPECT_THAT(AxesOf(common->of_destination[0]), ElementsAre(0));
  EXPECT_THAT(AxesOf(common->of_destination[1]), ElementsAre(1));
}

TEST(CommonAxes, AxesThatOverlapAreCutWhereEitherIs) {
  const auto common = FindCommonAxes(MeshOf("x=2,y=6 on a.0-11"), MeshOf("u=4,v=3 on a.0-11"));
  ASSERT_TRUE(common.has_value());
  EXPECT_THAT(Sizes(common->axes), ElementsAre(2, 2, 3));
  EXPECT_THAT(AxesOf(common->of_source[1]), ElementsAre(1, 2));
  EXPECT_THAT(AxesOf(common->of_destination[0]), ElementsAre(0, 1));
}

TEST(CommonAxes, TheyAreCalledAsTheAxesThatTheyAre) {
  const auto names = [](const char* source, const char* destination) {
    return Names(FindCommonAxes(MeshOf(source), MeshOf(destination))->axes);
  };
  EXPECT_THAT(names("dp=8 on a.0-7", "data=2,model=4 on a.0-7"), ElementsAre("data", "model"));
  EXPECT_THAT(names("x=4,y=2 on a.0-7", "x=4,y=2 on a.0-7"), ElementsAre("x", "y"));
  // One name for one axis: y of the destination is another one than y of the source.
  EXPECT_THAT(names("x=4,y=2 on a.0-7", "y=2,x=4 on a.0-7"), ElementsAre("d4", "d2", "y"));
  EXPECT_THAT(names("d2=4,y=2 on a.0-7", "y=2,d4=4 on a.0-7"), ElementsAre("d4_", "d2_", "y"));
}

TEST(CommonAxes, AxesOfOneAreNoParts) {
  const auto common = FindCommonAxes(MeshOf("x=1,y=2 on a.0-1"), MeshOf("z=2 on a.0-1"));
  ASSERT_TRUE(common.has_value());
  EXPECT_THAT(Sizes(common->axes), ElementsAre(2));
  EXPECT_THAT(AxesOf(common->of_source[0]), ElementsAre());
}

TEST(CommonAxes, OtherDevicesOrAnotherOrderHaveNone) {
  EXPECT_FALSE(FindCommonAxes(MeshOf("x=2 on a.0-1"), MeshOf("x=2 on a.1-2")).has_value());
  EXPECT_FALSE(FindCommonAxes(MeshOf("x=2 on a.0-1"), MeshOf("x=2 on a.1,a.0")).has_value());
  EXPECT_FALSE(FindCommonAxes(MeshOf("x=2,y=3 on a.0-5"), MeshOf("x=3,y=2 on a.0-5")).has_value());
}

}  // namespace
}  // namespace crossmesh
