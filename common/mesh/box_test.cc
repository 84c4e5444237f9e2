#include "common/mesh/box.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(IntervalTest, IntersectionIsEmptyWithoutACommonPart) {
  EXPECT_EQ(Intersect(Interval{0, 5}, Interval{3, 9}), (Interval{3, 5}));
  EXPECT_TRUE(Intersect(Interval{0, 3}, Interval{3, 9}).empty());
  EXPECT_EQ(Intersect(Interval{0, 3}, Interval{7, 9}).length(), 0);
}

TEST(BoxTest, VolumeIsTheProductOfTheLengths) {
  EXPECT_EQ(Box({{2, 4}, {0, 5}}).volume(), 10);
  EXPECT_EQ(Box().volume(), 1);
  EXPECT_FALSE(Box().empty());
  EXPECT_EQ(Box({{2, 2}, {0, 5}}).volume(), 0);
}

TEST(BoxTest, VolumeOfAnEmptyBoxDoesNotOverflowBeforeItMeetsTheZero) {
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(Box({{0, huge}, {0, huge}, {3, 3}}).volume(), 0);
}

TEST(BoxTest, IntersectsAndContains) {
  const Box box({{0, 4}, {2, 6}});
  EXPECT_EQ(Intersect(box, Box({{3, 9}, {0, 3}})), Box({{3, 4}, {2, 3}}));
  EXPECT_EQ(Intersect(box, Box({{4, 9}, {0, 3}})), std::nullopt);
  EXPECT_TRUE(box.Contains(Box({{1, 2}, {2, 6}})));
  EXPECT_FALSE(box.Contains(Box({{1, 2}, {1, 6}})));
  EXPECT_TRUE(box.Contains(Box({{9, 9}, {1, 6}}))) << "an empty box has nothing to contain";
}

TEST(BoxTest, PrintsAndParses) {
  EXPECT_EQ(ToString(Box({{0, 512}, {0, 1024}})), "[0:512, 0:1024]");
  EXPECT_EQ(ToString(Box()), "[]");
  EXPECT_THAT(ParseBox(" [ 0 : 512,0:1024 ] "), IsOkAndHolds(Box({{0, 512}, {0, 1024}})));
  EXPECT_THAT(ParseBox("[]"), IsOkAndHolds(Box()));
}

TEST(BoxTest, RefusesMalformedText) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "column 1: expected \"[\", found the end"},
      {"[1:2", "column 5: expected \"]\", found the end"},
      {"[1:2,]", "column 6: expected a number, found \"]\""},
      {"[-1:2]", "expected a number"},
      {"[3:2]", "column 4: expected an end of at least 3, found \"2\""},
      {"[1:2] x", "column 7: expected the end, found \"x\""},
      {"[0:99999999999999999999]", "expected a number below 2^63"},
      {"[0:9223372036854775807]", "expected a length of 0 to"},
      {"[0:1099511627776, 0:1099511627776]", "elements"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseBox(text), IsRefused(message)) << text;
  }
}

}  // namespace
}  // namespace crossmesh
