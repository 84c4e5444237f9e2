#include "common/mesh/gpu_model.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(GpuModelTest, TheDriversNameTellsTheModel) {
  ASSERT_NE(FindGpuModel("NVIDIA H100 80GB HBM3"), nullptr);
  EXPECT_EQ(FindGpuModel("NVIDIA H100 80GB HBM3")->nvlink_bytes_per_second, 450'000'000'000);
  EXPECT_EQ(FindGpuModel("NVIDIA H100 PCIe")->nvlink_bytes_per_second, 0);
  EXPECT_EQ(FindGpuModel("NVIDIA L40S")->copy_bytes_per_second(), 345'600'000'000);
}

TEST(GpuModelTest, AnotherModelIsNotGuessed) {
  EXPECT_EQ(FindGpuModel("NVIDIA L40"), nullptr);
  EXPECT_EQ(FindGpuModel(""), nullptr);
}

}  // namespace
}  // namespace crossmesh
