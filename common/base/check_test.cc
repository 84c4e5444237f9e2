#include "common/base/check.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

struct Unprintable {
  int value;
  friend bool operator==(Unprintable, Unprintable) = default;
};

TEST(CheckTest, TrueConditionsPass) {
  CHECK(true) << "not evaluated";
  CHECK_EQ(1, 1);
  CHECK_NE(1, 2);
  CHECK_LT(1, 2);
  CHECK_LE(2, 2);
  CHECK_GT(2, 1);
  CHECK_GE(2, 2);
  CHECK_OK(absl::OkStatus());
  CHECK_OK(absl::StatusOr<int>(7));
}

TEST(CheckTest, ExtraTextIsEvaluatedOnlyOnFailure) {
  int evaluations = 0;
  CHECK(true) << ++evaluations;
  EXPECT_EQ(evaluations, 0);
}

TEST(CheckTest, ChecksAreSingleStatements) {
  bool reached_else = false;
  if (reached_else)
    CHECK(true);
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

TEST(CheckDeathTest, FailureNamesConditionAndExtraText) {
  EXPECT_DEATH(CHECK(1 + 1 == 3) << "rank " << 7,
               "check_test.cc:.* check failed: 1 \\+ 1 == 3 rank 7");
}

TEST(CheckDeathTest, ComparisonsPrintBothOperands) {
  const int found = 2;
  EXPECT_DEATH(CHECK_EQ(found, 3) << "tiles", "found == 3 \\(2 vs. 3\\) tiles");
  EXPECT_DEATH(CHECK_NE(found, 2), "2 vs. 2");
  EXPECT_DEATH(CHECK_LT(found, 2), "2 vs. 2");
  EXPECT_DEATH(CHECK_LE(found, 1), "2 vs. 1");
  EXPECT_DEATH(CHECK_GT(found, 2), "2 vs. 2");
  EXPECT_DEATH(CHECK_GE(found, 3), "2 vs. 3");
}

TEST(CheckDeathTest, OperandsNeedNotBePrintable) {
  EXPECT_DEATH(CHECK_EQ((Unprintable{1}), (Unprintable{2})), "check failed");
}

TEST(CheckDeathTest, CheckOkPrintsTheStatus) {
  EXPECT_DEATH(CHECK_OK(absl::NotFoundError("no mesh 'a'")) << "in test",
               "NOT_FOUND: no mesh 'a'.* in test");
  EXPECT_DEATH(CHECK_OK(absl::StatusOr<int>(absl::AbortedError("fenced"))), "fenced");
}

}  // namespace
}  // namespace crossmesh
