#include "worker/gpu/devices/gpu_name.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(GpuNameTest, IsADeviceAndAUuid) {
  EXPECT_THAT(ParseGpuName("a.4=GPU-1"), IsOkAndHolds(GpuName{.device = {"a", 4}, .gpu = "GPU-1"}));
  EXPECT_THAT(ParseGpuName("a.4=MIG-1"), IsOkAndHolds(GpuName{.device = {"a", 4}, .gpu = "MIG-1"}));
  EXPECT_THAT(ParseGpuName("a.4=GPU-1:12"),
              IsOkAndHolds(GpuName{.device = {"a", 4}, .gpu = "GPU-1:12"}));
  for (const char* text : {"a.4", "a.4=", "=GPU-1", "a=GPU-1", "a.4=0", "",
                           "a.4=GPU-1:", "a.4=GPU-1:-1", "a.4=GPU-1:01", "a.4=GPU-1:0:1"}) {
    EXPECT_THAT(ParseGpuName(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
}

}  // namespace
}  // namespace crossmesh
