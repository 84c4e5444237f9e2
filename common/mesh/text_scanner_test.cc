#include "common/mesh/text_scanner.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(TextScannerTest, ReadsTokensAndSkipsSpaces) {
  TextScanner scanner("thing", "  [ data = 12 on=3 on ");
  EXPECT_TRUE(scanner.Take("["));
  EXPECT_FALSE(scanner.Take("]"));
  EXPECT_THAT(scanner.AxisName(), IsOkAndHolds("data"));
  EXPECT_OK(scanner.Expect("="));
  EXPECT_THAT(scanner.Integer(), IsOkAndHolds(12));
  EXPECT_FALSE(scanner.TakeWord("on")) << "an axis named on";
  EXPECT_THAT(scanner.AxisName(), IsOkAndHolds("on"));
  EXPECT_TRUE(scanner.Take("=3"));
  EXPECT_TRUE(scanner.TakeWord("on"));
  EXPECT_TRUE(scanner.AtEnd());
  EXPECT_OK(scanner.ExpectEnd());
}

TEST(TextScannerTest, ErrorsShowTextPlaceAndExpectation) {
  TextScanner scanner("thing", "[ 7seven");
  ASSERT_TRUE(scanner.Take("["));
  EXPECT_THAT(scanner.Expect("]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "thing \"[ 7seven\", column 3: expected \"]\", found \"7seven\""));
  EXPECT_THAT(scanner.ExpectEnd(), IsRefused("expected the end"));
}

TEST(TextScannerTest, ErrorsInLongTextsShowTheSurroundings) {
  const std::string text = std::string(1000, ' ') + "abc" + std::string(1000, ' ');
  TextScanner scanner("thing", text);
  const absl::Status error = scanner.Expect("x");
  EXPECT_THAT(error, IsRefused("abc"));
  EXPECT_THAT(error, IsRefused("column 1001"));
  EXPECT_LT(error.message().size(), 300U);
}

TEST(TextScannerTest, RefusesNumbersAndNamesOutOfRange) {
  EXPECT_THAT(TextScanner("n", "9223372036854775807").Integer(), IsOkAndHolds(9223372036854775807));
  EXPECT_THAT(TextScanner("n", "9223372036854775808").Integer(), IsRefused("below 2^63"));
  EXPECT_OK(TextScanner("n", std::string(32, 'a')).AxisName());
  for (const std::string& name : {std::string(33, 'a'), std::string("_a"), std::string("1a")}) {
    TextScanner scanner("n", name);
    EXPECT_THAT(scanner.AxisName(), IsRefused("axis name")) << name;
  }
}

}  // namespace
}  // namespace crossmesh
