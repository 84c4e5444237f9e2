#include "worker/gpu/kernels/kernel_image.h"

#include "worker/gpu/kernels/kernel.h"
#include "worker/gpu/kernels/testing/host_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(KernelImageTest, IsAFatbinAtAnAddressThatTheDriverTakes) {
  const std::span<const std::byte> image = KernelImage();
  constexpr uint32_t kMagic = 0xBA55ED50;
  uint32_t magic = 0;
  ASSERT_GT(image.size(), sizeof(magic));
  std::memcpy(&magic, image.data(), sizeof(magic));
  EXPECT_EQ(magic, kMagic);
  EXPECT_EQ(reinterpret_cast<uint64_t>(image.data()) % 64, 0);
}

TEST(KernelImageTest, EveryKernelHasARunnerOnTheHost) {
  EXPECT_TRUE(std::ranges::is_sorted(Kernels(), {}, &Kernel::name));
  ASSERT_EQ(Kernels().size(), HostKernels().size());
  for (const Kernel& kernel : Kernels()) {
    EXPECT_EQ(HostKernelOf(kernel.name).argument_bytes, kernel.argument_bytes);
    EXPECT_EQ(kernel.threads % 32, 0) << kernel.name;
    EXPECT_EQ(std::strlen(kernel.name.data()), kernel.name.size());
  }
}

}  // namespace
}  // namespace crossmesh
