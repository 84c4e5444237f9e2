#include "worker/gpu/kernels/xxh3.h"

#include "common/plan/plan.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/pack_kernel.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"
#include "worker/gpu/kernels/testing/run_on_host.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <xxhash.h>

namespace crossmesh {
namespace {

static_assert(kLeafBytes == Plan::kLeafBytes);

// The hashes of contiguous bytes: nothing is packed.
std::vector<uint64_t> HashByKernel(KernelMemory& memory, int64_t bytes) {
  const KernelBox box = {
      .address = memory.address(), .rows = 1, .row_bytes = bytes, .pitch_bytes = bytes};
  std::vector<uint64_t> hashes((bytes + kLeafBytes - 1) / kLeafBytes);
  RunOnHost<PackKernel<CopiedBytes>>(
      static_cast<int32_t>(hashes.size()),
      {.boxes = &box, .box_count = 1, .end = bytes, .leaf_hashes = hashes.data()});
  return hashes;
}

TEST(Xxh3Test, ShortInputsHashAsInTheLibrary) {
  RandomSource random(1);
  uint64_t secret[kXxh3SecretWords];
  for (int i = 0; i < kXxh3SecretWords; ++i) secret[i] = Xxh3SecretWord(i);
  for (int bytes = 0; bytes <= kXxh3ShortMax; ++bytes) {
    KernelMemory memory(bytes, random);
    EXPECT_EQ(Xxh3Short(memory.data(), bytes, secret), XXH3_64bits(memory.data(), bytes)) << bytes;
  }
}

TEST(Xxh3Test, EveryByteCounts) {
  RandomSource random(3);
  KernelMemory memory(kLeafBytes, random);
  const std::vector<uint64_t> before = HashByKernel(memory, kLeafBytes);
  for (int64_t at = 0; at < kLeafBytes; at += 997) {
    memory.data()[at] ^= std::byte{1};
    EXPECT_NE(HashByKernel(memory, kLeafBytes), before) << at;
    memory.data()[at] ^= std::byte{1};
  }
  EXPECT_EQ(HashByKernel(memory, kLeafBytes), before);
}

}  // namespace
}  // namespace crossmesh
