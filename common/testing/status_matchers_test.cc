#include "common/testing/status_matchers.h"

#include "common/testing/paths.h"

#include <memory>
#include <string>

#include <gtest/gtest-spi.h>

namespace crossmesh {
namespace {

using ::testing::EndsWith;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointee;

absl::StatusOr<int> Seven() { return 7; }
absl::StatusOr<int> Missing() { return absl::NotFoundError("mesh 'a' is not registered"); }

TEST(StatusMatchersTest, IsOkTellsStatusesApart) {
  EXPECT_THAT(absl::OkStatus(), IsOk());
  EXPECT_THAT(absl::AbortedError(""), Not(IsOk()));
  EXPECT_THAT(Missing(), Not(IsOk()));
}

TEST(StatusMatchersTest, IsOkAndHoldsMatchesTheValue) {
  EXPECT_THAT(Seven(), IsOkAndHolds(7));
  EXPECT_THAT(Seven(), IsOkAndHolds(Gt(6)));
  EXPECT_THAT(Seven(), Not(IsOkAndHolds(8)));
  EXPECT_THAT(Missing(), Not(IsOkAndHolds(7)));
  const absl::StatusOr<std::unique_ptr<int>> only_movable = std::make_unique<int>(3);
  EXPECT_THAT(only_movable, IsOkAndHolds(Pointee(3)));
}

TEST(StatusMatchersTest, StatusIsMatchesCodeAndMessage) {
  EXPECT_THAT(Missing(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Missing().status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("'a'")));
  EXPECT_THAT(Missing(), StatusIs(absl::StatusCode::kNotFound, "mesh 'a' is not registered"));
  EXPECT_THAT(Missing(), Not(StatusIs(absl::StatusCode::kAborted)));
  EXPECT_THAT(Missing(), Not(StatusIs(absl::StatusCode::kNotFound, HasSubstr("'b'"))));
}

TEST(StatusMatchersTest, AssertOkAndAssignUnwrapsTheValue) {
  ASSERT_OK_AND_ASSIGN(const int value, Seven());
  EXPECT_EQ(value, 7);
}

TEST(StatusMatchersTest, FailuresShowTheStatus) {
  EXPECT_NONFATAL_FAILURE(EXPECT_OK(Missing()), "mesh 'a' is not registered");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(Missing(), IsOkAndHolds(7)), "mesh 'a' is not registered");
}

TEST(PathsTest, PathsAreAbsolute) {
  EXPECT_THAT(SourcePath("CMakeLists.txt"), EndsWith("/CMakeLists.txt"));
  EXPECT_EQ(ProgramPath("crossmesh").front(), '/');
}

}  // namespace
}  // namespace crossmesh
