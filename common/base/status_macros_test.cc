#include "common/base/status_macros.h"

#include <memory>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

absl::Status Pass(const absl::Status& status) {
  RETURN_IF_ERROR(status);
  return absl::AlreadyExistsError("reached the end");
}

absl::StatusOr<int> Sum(absl::StatusOr<int> a, absl::StatusOr<int> b) {
  ASSIGN_OR_RETURN(const int first, a);
  int second = 0;
  ASSIGN_OR_RETURN(second, std::move(b));
  return first + second;
}

absl::StatusOr<std::unique_ptr<int>> Forward(absl::StatusOr<std::unique_ptr<int>> pointer) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> moved, std::move(pointer));
  return moved;
}

TEST(StatusMacrosTest, ReturnIfErrorReturnsOnlyErrors) {
  EXPECT_EQ(Pass(absl::AbortedError("x")), absl::AbortedError("x"));
  EXPECT_EQ(Pass(absl::OkStatus()), absl::AlreadyExistsError("reached the end"));
}

TEST(StatusMacrosTest, AssignOrReturnUnwrapsValues) { EXPECT_EQ(Sum(3, 4).value(), 7); }

TEST(StatusMacrosTest, AssignOrReturnReturnsTheFirstError) {
  EXPECT_EQ(Sum(absl::AbortedError("a"), absl::InternalError("b")).status(),
            absl::AbortedError("a"));
  EXPECT_EQ(Sum(1, absl::InternalError("b")).status(), absl::InternalError("b"));
}

TEST(StatusMacrosTest, AssignOrReturnMovesValues) {
  EXPECT_EQ(*Forward(std::make_unique<int>(5)).value(), 5);
}

}  // namespace
}  // namespace crossmesh
