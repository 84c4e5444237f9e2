#include "worker/gpu/libraries/driver_api.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DriverApiTest, AMachineWithoutADriverIsToldByTheLibrarysName) {
  EXPECT_THAT(DriverApi::Load({.library = "libcuda-that-is-not-there.so.1"}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("library libcuda-that-is-not-there.so.1 cannot be loaded")));
}

TEST(DriverApiTest, ALibraryThatIsNoDriverIsRefusedWithWhatItLacks) {
  EXPECT_THAT(
      DriverApi::Load({.library = "libm.so.6"}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("CUDA driver 0.0"), HasSubstr("libm.so.6"),
                     HasSubstr("expected version 13.0 or later"), HasSubstr("cuMemCreate"))));
}

// cuda.h maps names to versions of calls; loading the name without one would give an old call.
TEST(DriverApiTest, SymbolsHaveTheVersionThatTheHeaderGivesThem) {
  EXPECT_THAT(DriverApi::Load({.library = "libm.so.6"}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("cuEventDestroy_v2,"), HasSubstr("cuStreamDestroy_v2,"),
                             HasSubstr("cuDevicePrimaryCtxRelease_v2,"))));
}

}  // namespace
}  // namespace crossmesh
