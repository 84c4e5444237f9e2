#include "common/communicators/gpu_share.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(GpuShareTest, IsNamedAfterItsGpu) {
  EXPECT_FALSE(IsGpuShare("GPU-4bd8"));
  EXPECT_TRUE(IsGpuShare("GPU-4bd8:0"));
  EXPECT_EQ(UuidOf("GPU-4bd8"), "GPU-4bd8");
  EXPECT_EQ(UuidOf("GPU-4bd8:0"), "GPU-4bd8");
}

}  // namespace
}  // namespace crossmesh
