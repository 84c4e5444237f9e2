#include "worker/gpu/libraries/nccl_api.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NcclApiTest, ALibraryThatIsNotThereIsNamed) {
  EXPECT_THAT(NcclApi::Load({.library = "libnccl-that-is-not-there.so.2"}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("library libnccl-that-is-not-there.so.2 cannot be loaded")));
}

TEST(NcclApiTest, ALibraryThatIsNotNcclIsRefusedWithWhatItLacks) {
  EXPECT_THAT(
      NcclApi::Load({.library = "libm.so.6"}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("NCCL 0.0.0"), HasSubstr("libm.so.6"),
                     HasSubstr("expected version 2.28.9 or later"), HasSubstr("ncclCommRevoke"))));
}

}  // namespace
}  // namespace crossmesh
