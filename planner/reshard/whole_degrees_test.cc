#include "planner/reshard/whole_degrees.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;

TEST(WholeDegreesTest, FractionsAreLaidAroundTheBytes) {
  const std::vector<absl::int128> amounts = {15, 10, 5, 0};
  const std::vector<DegreeSection> sections = WholeDegrees(amounts, 10, 1);
  ASSERT_EQ(sections.size(), 2u);
  EXPECT_EQ(sections[0].end, 5);
  EXPECT_THAT(sections[0].degrees, ElementsAre(2, 1, 0, 0));
  EXPECT_EQ(sections[1].end, 10);
  EXPECT_THAT(sections[1].degrees, ElementsAre(1, 1, 1, 0));
  EXPECT_EQ(CountSections(amounts, 10, 1), 2);
}

TEST(WholeDegreesTest, AFanOutDealsOutReceiversWithOneCopy) {
  const DegreeSection section = {.end = 20'000, .degrees = {1, 1, 1, 1, 1, 0}};
  const std::vector<DegreeSection> parts = FanOut(section, 10'000, /*holders=*/1, 2);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].end, 15'000);
  EXPECT_THAT(parts[0].degrees, ElementsAre(1, 2, 2, 0, 0, 0));
  EXPECT_EQ(parts[1].end, 20'000);
  EXPECT_THAT(parts[1].degrees, ElementsAre(1, 0, 0, 2, 2, 0));
}

TEST(WholeDegreesTest, WhoCannotBeDealtOutKeepsItsDegree) {
  const DegreeSection section = {.end = 30'000, .degrees = {1, 3, 1, 1, 1, 1, 0, 0}};
  const std::vector<DegreeSection> parts = FanOut(section, 0, /*holders=*/1, 3);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_THAT(parts[0].degrees, ElementsAre(1, 3, 3, 0, 0, 1, 0, 0));
  EXPECT_THAT(parts[1].degrees, ElementsAre(1, 3, 0, 3, 0, 1, 0, 0));
  EXPECT_THAT(parts[2].degrees, ElementsAre(1, 3, 0, 0, 3, 1, 0, 0));
}

TEST(WholeDegreesTest, AFanOutBeyondTheReceiversIsTheirNumber) {
  const DegreeSection section = {.end = 1 << 20, .degrees = {1, 1, 1, 0}};
  EXPECT_EQ(FanOut(section, 0, /*holders=*/1, 64).size(), 2u);
  const DegreeSection one_hop = {.end = 1 << 20, .degrees = {1, 0}};
  EXPECT_EQ(FanOut(one_hop, 0, /*holders=*/1, 64).size(), 1u);
}

TEST(WholeDegreesTest, FewBytesAreNotCutSmaller) {
  const DegreeSection section = {.end = kFanOutBytesMin, .degrees = {1, 1, 1, 1, 1, 0}};
  const std::vector<DegreeSection> parts = FanOut(section, 0, /*holders=*/1, 2);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].end, kFanOutBytesMin);
  EXPECT_THAT(parts[0].degrees, ElementsAre(1, 2, 2, 0, 0, 0));
}

}  // namespace
}  // namespace crossmesh
