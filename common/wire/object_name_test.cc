#include "common/wire/object_name.h"

#include "common/testing/status_matchers.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ObjectNameTest, NamesAreShortAndPlain) {
  EXPECT_OK(CheckObjectName("mesh", "train_a.0-1"));
  EXPECT_OK(CheckObjectName("mesh", std::string(63, 'a')));
  for (const std::string& bad : {std::string(), std::string(64, 'a'), std::string("A"),
                                 std::string("a b"), std::string("\x01\0", 2)}) {
    EXPECT_THAT(CheckObjectName("mesh", bad),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("mesh name"), HasSubstr("found \""))));
  }
}

TEST(ObjectNameTest, RequestIdsMayHaveCapitals) {
  EXPECT_OK(CheckRequestId("Step-17"));
  EXPECT_THAT(CheckRequestId(""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckRequestId("a/b"), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh
