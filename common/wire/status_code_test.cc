#include "common/wire/status_code.h"

#include "common/testing/status_matchers.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(StatusCodeTest, ACodeBecomesItsStatus) {
  EXPECT_OK(StatusFromCode(0, "is not kept"));
  EXPECT_THAT(StatusFromCode(15, "relay 3"), StatusIs(absl::StatusCode::kDataLoss, "relay 3"));
  EXPECT_THAT(StatusFromCode(16, "who?"), StatusIs(absl::StatusCode::kUnauthenticated, "who?"));
}

TEST(StatusCodeTest, ACodeThatIsNoneIsUnknown) {
  EXPECT_THAT(StatusFromCode(17, "later"), StatusIs(absl::StatusCode::kUnknown, "later"));
  EXPECT_THAT(StatusFromCode(-1, "never"), StatusIs(absl::StatusCode::kUnknown, "never"));
}

}  // namespace
}  // namespace crossmesh
