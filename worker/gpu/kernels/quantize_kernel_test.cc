#include "worker/gpu/kernels/quantize_kernel.h"

#include "common/mesh/conversion.h"
#include "common/numbers/block_scale.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/cpu_twins.h"
#include "worker/gpu/kernels/testing/host_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

static_assert(kScaleBlock == kScaleBlockLength);

// Matrices of bf16 in one memory, and their scales in another.
struct Matrices {
  explicit Matrices(RandomSource& random) {
    int64_t place = 0;
    int64_t scales_place = 0;
    for (int64_t i = random.Between(1, 3); i > 0; --i) {
      if (!random.OneIn(4)) place = (place + 15) / 16 * 16;
      const int64_t columns = random.OneIn(2) ? 128 * random.Between(1, 3) : random.Between(1, 400);
      QuantizedBox box = {.address = static_cast<uint64_t>(place),
                          .rows = random.Between(1, 300),
                          .columns = columns,
                          .pitch_bytes = 2 * (columns + (random.OneIn(2) ? 0 : random.Below(30))),
                          .packed_offset = packed_bytes,
                          .scales_address = static_cast<uint64_t>(scales_place),
                          .first_block = blocks};
      box.scales_pitch_bytes = 4 * (ScaleBlocks(columns) + random.Below(3));
      place += box.rows * box.pitch_bytes;
      scales_place += ScaleBlocks(box.rows) * box.scales_pitch_bytes;
      blocks += ScaleBlocks(box.rows) * ScaleBlocks(columns);
      packed_bytes += box.rows * columns;
      boxes.push_back(box);
    }
    memory = KernelMemory(place, random);
    scales = KernelMemory(scales_place, random);
    for (QuantizedBox& box : boxes) {
      box.address += memory.address();
      box.scales_address += scales.address();
    }
    MakeOrdinary(random);
  }

  // Random bits are of all magnitudes; weights are not. Some of them are NaN and infinite.
  void MakeOrdinary(RandomSource& random) {
    if (random.OneIn(3)) return;
    for (std::byte& byte : memory.bytes()) {
      if (reinterpret_cast<uint64_t>(&byte) % 2 == 0) continue;
      byte = (byte & std::byte{0x81}) | std::byte{0x3C};
      if (random.OneIn(5000)) byte |= std::byte{0x7F};
    }
  }

  std::vector<QuantizedBox> boxes;
  int64_t packed_bytes = 0;
  int64_t blocks = 0;
  KernelMemory memory;
  KernelMemory scales;
};

void Quantize(const Matrices& matrices, int64_t begin, int64_t end, KernelMemory& packed) {
  const QuantizedBlocks blocks = QuantizedBlocksOf(matrices.boxes, begin, end);
  const QuantizeArguments arguments = {.boxes = matrices.boxes.data(),
                                       .box_count = static_cast<int32_t>(matrices.boxes.size()),
                                       .first_block = blocks.first,
                                       .begin = begin,
                                       .end = end,
                                       .packed = packed.data()};
  HostKernelOf("crossmesh_quantize").run(static_cast<int32_t>(blocks.count), &arguments);
}

TEST(QuantizeKernelTest, QuantizesAsItsTwinAndWritesNothingElse) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    Matrices matrices(random);
    const std::vector<std::byte> memory_before = matrices.memory.Copy();
    KernelMemory packed(matrices.packed_bytes, random);
    std::vector<std::byte> packed_before = packed.Copy();
    Quantize(matrices, 0, matrices.packed_bytes, packed);
    const std::vector<std::byte> scales = matrices.scales.Copy();

    const std::vector<std::byte> expected = QuantizeOnCpu(matrices.boxes);
    std::ranges::copy(expected, packed_before.begin() + kPieceBytes);
    ASSERT_EQ(packed.Copy(), packed_before);
    // The twin has written its scales over the same memory.
    ASSERT_EQ(scales, matrices.scales.Copy());
    EXPECT_EQ(matrices.memory.Copy(), memory_before);
  }
}

// What hosts do is the twin's as well.
TEST(QuantizeKernelTest, HostsQuantizeAlike) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    Matrices matrices(random);
    const std::vector<std::byte> expected = QuantizeOnCpu(matrices.boxes);
    for (const QuantizedBox& box : matrices.boxes) {
      for (int64_t row = 0; row < box.rows; row += kScaleBlock) {
        for (int64_t column = 0; column < box.columns; column += kScaleBlock) {
          const ElementBlock block = {
              .begin = MemoryAt(box.address + row * box.pitch_bytes + 2 * column),
              .rows = std::min<int64_t>(kScaleBlock, box.rows - row),
              .columns = std::min<int64_t>(kScaleBlock, box.columns - column),
              .pitch_bytes = box.pitch_bytes};
          const BlockScale scale = ScaleOf(block);
          ASSERT_EQ(scale.scale, LoadAligned<float>(box.scales_address +
                                                    row / kScaleBlock * box.scales_pitch_bytes +
                                                    4 * (column / kScaleBlock)));
          for (int64_t r = 0; r < block.rows; ++r) {
            std::vector<std::byte> found(block.columns);
            QuantizeElements(block.begin + r * block.pitch_bytes, found.data(), block.columns,
                             scale.factor);
            const int64_t at = box.packed_offset + (row + r) * box.columns + column;
            ASSERT_TRUE(std::ranges::equal(found, std::span(expected).subspan(at, block.columns)));
          }
        }
      }
    }
  }
}

TEST(QuantizeKernelTest, ARangeHasTheBytesThatAllHaveThere) {
  for (uint64_t seed = 100; seed < 160; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    Matrices matrices(random);
    const std::vector<std::byte> all = QuantizeOnCpu(matrices.boxes);
    const std::vector<std::byte> scales = matrices.scales.Copy();
    const int64_t begin = random.Below(matrices.packed_bytes);
    const int64_t end = random.Between(begin + 1, matrices.packed_bytes);
    KernelMemory packed(end - begin, random);
    std::vector<std::byte> expected = packed.Copy();
    Quantize(matrices, begin, end, packed);
    std::ranges::copy(std::span(all).subspan(begin, end - begin), expected.begin() + kPieceBytes);
    ASSERT_EQ(packed.Copy(), expected);
    ASSERT_EQ(matrices.scales.Copy(), scales);
  }
}

struct OneBlock {
  explicit OneBlock(const std::vector<float>& row) {
    RandomSource random(1);
    memory = KernelMemory(2 * std::ssize(row), random);
    for (size_t i = 0; i < row.size(); ++i) {
      StoreAligned(memory.address() + 2 * i, Bf16::Narrow(BitsOf(row[i])));
    }
    const QuantizedBox box = {.address = memory.address(),
                              .rows = 1,
                              .columns = std::ssize(row),
                              .pitch_bytes = 2 * std::ssize(row),
                              .scales_address = reinterpret_cast<uint64_t>(&scale),
                              .scales_pitch_bytes = 4};
    packed = KernelMemory(std::ssize(row), random);
    const QuantizeArguments arguments = {
        .boxes = &box, .box_count = 1, .end = box.columns, .packed = packed.data()};
    HostKernelOf("crossmesh_quantize").run(1, &arguments);
    for (const std::byte byte : packed.bytes()) fp8.push_back(std::to_integer<int>(byte));
  }
  KernelMemory memory;
  KernelMemory packed;
  float scale = 0;
  std::vector<int> fp8;
};

TEST(QuantizeKernelTest, TheLargestBecomes448) {
  const OneBlock block({896, -896, 2, 0, -0.0F, 448, 1});
  EXPECT_EQ(block.scale, 2);
  EXPECT_EQ(block.fp8, (std::vector<int>{0x7E, 0xFE, 0x38, 0x00, 0x80, 0x76, 0x30}));
}

TEST(QuantizeKernelTest, ABlockOfZerosHasAScaleAndZeros) {
  const OneBlock block({0, -0.0F, 0});
  EXPECT_EQ(block.scale, std::ldexp(1.0F, -100) / 448);
  EXPECT_EQ(block.fp8, (std::vector<int>{0x00, 0x80, 0x00}));
}

TEST(QuantizeKernelTest, WhatIsNotFiniteDoesNotCountForTheScale) {
  const OneBlock block({448, INFINITY, -INFINITY, NAN, 1});
  EXPECT_EQ(block.scale, 1);
  EXPECT_EQ(block.fp8, (std::vector<int>{0x7E, 0x7E, 0xFE, 0x7F, 0x38}));
}

}  // namespace
}  // namespace crossmesh
