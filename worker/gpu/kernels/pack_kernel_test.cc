#include "worker/gpu/kernels/pack_kernel.h"

#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/cpu_twins.h"
#include "worker/gpu/kernels/testing/host_kernels.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// A range of the packed bytes of boxes, at element boundaries, and room for its bytes and hashes.
struct PackedRange {
  PackedRange(const BoxMemory& boxes, int64_t element_bytes, RandomSource& random) {
    const int64_t elements = boxes.packed_bytes / element_bytes;
    begin = random.OneIn(3) ? 0 : random.Below(elements) * element_bytes;
    end = random.OneIn(3)
              ? boxes.packed_bytes
              : begin + element_bytes * random.Between(1, elements - begin / element_bytes);
    packed = KernelMemory(end - begin, random);
    leaf_hashes.resize(LeavesOf(begin, end));
  }

  PackArguments Arguments(const BoxMemory& boxes) {
    return {.boxes = boxes.boxes.data(),
            .box_count = static_cast<int32_t>(boxes.boxes.size()),
            .begin = begin,
            .end = end,
            .packed = packed.data(),
            .leaf_hashes = leaf_hashes.data()};
  }
  std::span<const std::byte> Of(std::span<const std::byte> packed_bytes) const {
    return packed_bytes.subspan(begin, end - begin);
  }
  int32_t leaves() const { return static_cast<int32_t>(leaf_hashes.size()); }

  int64_t begin = 0;
  int64_t end = 0;
  KernelMemory packed;
  std::vector<uint64_t> leaf_hashes;
};

struct PackOfTypes {
  const char* kernel;
  DataType from;
  DataType to;
};

constexpr PackOfTypes kPacks[] = {
    {"crossmesh_pack", DataType::kU8, DataType::kU8},
    {"crossmesh_pack_bf16_as_f16", DataType::kBF16, DataType::kF16},
    {"crossmesh_pack_bf16_as_f32", DataType::kBF16, DataType::kF32},
    {"crossmesh_pack_f16_as_bf16", DataType::kF16, DataType::kBF16},
    {"crossmesh_pack_f16_as_f32", DataType::kF16, DataType::kF32},
    {"crossmesh_pack_f32_as_bf16", DataType::kF32, DataType::kBF16},
    {"crossmesh_pack_f32_as_f16", DataType::kF32, DataType::kF16},
};

BoxMemory RandomBoxes(const PackOfTypes& pack, RandomSource& random) {
  return BoxMemory({.packed_bytes = random.Between(1, 5 * kLeafBytes / 2),
                    .memory_bytes = static_cast<int>(ItemBytes(pack.from)),
                    .packed_element_bytes = static_cast<int>(ItemBytes(pack.to))},
                   random);
}

bool Same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

class PackKernelTest : public ::testing::TestWithParam<PackOfTypes> {};

TEST_P(PackKernelTest, PacksAndHashesAsItsTwinAndWritesNothingElse) {
  const PackOfTypes pack = GetParam();
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    BoxMemory boxes = RandomBoxes(pack, random);
    const std::vector<std::byte> memory_before = boxes.memory.Copy();
    PackedRange range(boxes, ItemBytes(pack.to), random);
    std::vector<std::byte> packed_before = range.packed.Copy();
    const PackArguments arguments = range.Arguments(boxes);
    HostKernelOf(pack.kernel).run(range.leaves(), &arguments);

    const std::vector<std::byte> expected = PackOnCpu(boxes.boxes, pack.from, pack.to);
    ASSERT_TRUE(Same(range.packed.bytes(), range.Of(expected)));
    ASSERT_EQ(range.leaf_hashes, LeafHashesOnCpu(range.Of(expected)));
    EXPECT_EQ(boxes.memory.Copy(), memory_before);
    std::ranges::copy(range.Of(expected), packed_before.begin() + kPieceBytes);
    EXPECT_EQ(range.packed.Copy(), packed_before);
  }
}

TEST_P(PackKernelTest, HashesWithoutPackingAndPacksWithoutHashing) {
  const PackOfTypes pack = GetParam();
  for (uint64_t seed = 100; seed < 120; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    BoxMemory boxes = RandomBoxes(pack, random);
    PackedRange range(boxes, ItemBytes(pack.to), random);
    PackArguments arguments = range.Arguments(boxes);
    const std::vector<std::byte> before = range.packed.Copy();
    arguments.packed = nullptr;
    HostKernelOf(pack.kernel).run(range.leaves(), &arguments);
    EXPECT_EQ(range.packed.Copy(), before);

    arguments.packed = range.packed.data();
    arguments.leaf_hashes = nullptr;
    HostKernelOf(pack.kernel).run(range.leaves(), &arguments);
    EXPECT_EQ(range.leaf_hashes, LeafHashesOnCpu(range.packed.bytes()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackKernelTest, ::testing::ValuesIn(kPacks),
                         [](const auto& test) { return std::string(test.param.kernel); });

TEST(UnpackKernelTest, UnpacksAndHashesAsItsTwinAndWritesNothingElse) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    BoxMemory boxes = RandomBoxes(kPacks[0], random);
    const std::vector<std::byte> memory_before = boxes.memory.Copy();
    PackedRange range(boxes, 1, random);
    // What the boxes should hold then: what they hold, and in the range what comes.
    std::vector<std::byte> packed = PackOnCpu(boxes.boxes, DataType::kU8, DataType::kU8);
    std::ranges::copy(range.packed.bytes(), packed.begin() + range.begin);
    UnpackOnCpu(boxes.boxes, packed);
    const std::vector<std::byte> expected = boxes.memory.Copy();
    std::ranges::copy(std::span(memory_before).subspan(kPieceBytes, boxes.memory.bytes().size()),
                      boxes.memory.data());

    const PackArguments arguments = range.Arguments(boxes);
    HostKernelOf("crossmesh_unpack").run(range.leaves(), &arguments);
    ASSERT_EQ(boxes.memory.Copy(), expected);
    ASSERT_EQ(range.leaf_hashes, LeafHashesOnCpu(range.packed.bytes()));
  }
}

TEST(UnpackKernelTest, CopiesTheHashesThatCameWhetherItHashesOrNot) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    const BoxMemory boxes = RandomBoxes(kPacks[0], random);
    PackedRange range(boxes, 1, random);
    std::vector<uint64_t> came(range.leaf_hashes.size());
    for (uint64_t& hash : came) hash = static_cast<uint64_t>(random.Below(int64_t{1} << 60));
    // One more than is copied.
    std::vector<uint64_t> kept(came.size() + 1, 7);
    PackArguments arguments = range.Arguments(boxes);
    arguments.root_hashes = came.data();
    arguments.root_hashes_to = kept.data();
    if (random.OneIn(2)) arguments.leaf_hashes = nullptr;
    HostKernelOf("crossmesh_unpack").run(range.leaves(), &arguments);
    EXPECT_EQ(kept.back(), 7);
    kept.pop_back();
    EXPECT_EQ(kept, came);
  }
}

TEST(UnpackKernelTest, HashesWhatArrivedAndNotWhatCame) {
  RandomSource random(1);
  KernelMemory memory(1024, random);
  KernelMemory packed(2048, random);
  // Two boxes on the same memory: only one of them can be there in the end.
  const KernelBox boxes[] = {
      {.address = memory.address(), .rows = 1, .row_bytes = 1024, .pitch_bytes = 1024},
      {.address = memory.address(),
       .rows = 1,
       .row_bytes = 1024,
       .pitch_bytes = 1024,
       .packed_offset = 1024}};
  uint64_t hash = 0;
  const PackArguments arguments = {
      .boxes = boxes, .box_count = 2, .end = 2048, .packed = packed.data(), .leaf_hashes = &hash};
  HostKernelOf("crossmesh_unpack").run(1, &arguments);
  EXPECT_EQ(hash, LeafHashesOnCpu(PackOnCpu(boxes, DataType::kU8, DataType::kU8))[0]);
  EXPECT_NE(hash, LeafHashesOnCpu(packed.bytes())[0]);
}

}  // namespace
}  // namespace crossmesh
