// bf16 packed and copied as fp8 by factors that are known before: those that crossmesh_quantize
// writes without packing.

#include "common/mesh/conversion.h"
#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/element_scaling.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/pieces_in_memory.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/cpu_twins.h"
#include "worker/gpu/kernels/testing/host_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

static_assert(kScaleBlock == kScaleBlockLength);

constexpr Conversion kTypes = {.from = DataType::kBF16, .to = DataType::kF8E4M3};

// Weights, of which some are NaN and infinite.
void MakeOrdinary(KernelMemory& memory, RandomSource& random) {
  for (std::byte& byte : memory.bytes()) {
    if (reinterpret_cast<uint64_t>(&byte) % 2 == 0) continue;
    byte = (byte & std::byte{0x81}) | std::byte{0x3C};
    if (random.OneIn(5000)) byte |= std::byte{0x7F};
  }
}

// Boxes with factors, of bits of all kinds or such that most elements can be told apart.
struct BoxesWithFactors {
  explicit BoxesWithFactors(RandomSource& random)
      : boxes({.packed_bytes = random.Between(1, 5 * kLeafBytes / 2), .memory_bytes = 2}, random) {
    int64_t factors_bytes = 0;
    for (const KernelBox& box : boxes.boxes) factors_bytes += FactorsBytes(box);
    factors = KernelMemory(factors_bytes, random);
    if (!random.OneIn(3)) {
      MakeOrdinary(boxes.memory, random);
      for (int64_t at = 0; at < factors_bytes; at += sizeof(float)) {
        const auto exponent = static_cast<int>(random.Between(4, 10));
        const float factor = std::ldexp(1 + static_cast<float>(random.Below(99)) / 99, exponent);
        std::memcpy(factors.data() + at, &factor, sizeof(factor));
      }
    }
    uint64_t place = factors.address();
    for (KernelBox& box : boxes.boxes) {
      box.factors_address = place;
      place += FactorsBytes(box);
    }
  }

  static int64_t FactorsBytes(const KernelBox& box) {
    return ScaleBlocks(box.row_bytes / 2) * static_cast<int64_t>(sizeof(float));
  }
  int32_t count() const { return static_cast<int32_t>(boxes.boxes.size()); }

  BoxMemory boxes;
  KernelMemory factors;
};

struct Range {
  Range(int64_t bytes, RandomSource& random)
      : begin(random.OneIn(3) ? 0 : random.Below(bytes)),
        end(random.OneIn(3) ? bytes : random.Between(begin + 1, bytes)) {}
  int32_t leaves() const { return static_cast<int32_t>(LeavesOf(begin, end)); }

  int64_t begin = 0;
  int64_t end = 0;
};

TEST(QuantizedElementsTest, ArePackedAndHashedAsByTheTwinAndNothingElseIsWritten) {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    BoxesWithFactors source(random);
    const std::vector<std::byte> memory_before = source.boxes.memory.Copy();
    const std::vector<std::byte> factors_before = source.factors.Copy();
    const Range range(source.boxes.packed_bytes, random);
    KernelMemory packed(range.end - range.begin, random);
    std::vector<std::byte> expected = packed.Copy();
    std::vector<uint64_t> hashes(range.leaves());
    const PackArguments arguments = {.boxes = source.boxes.boxes.data(),
                                     .box_count = source.count(),
                                     .begin = range.begin,
                                     .end = range.end,
                                     .packed = packed.data(),
                                     .leaf_hashes = hashes.data()};
    HostKernelOf("crossmesh_pack_bf16_as_f8_e4m3").run(range.leaves(), &arguments);

    const std::vector<std::byte> all = PackOnCpu(source.boxes.boxes, kTypes.from, kTypes.to);
    const auto of_range = std::span(all).subspan(range.begin, range.end - range.begin);
    std::ranges::copy(of_range, expected.begin() + kPieceBytes);
    ASSERT_EQ(packed.Copy(), expected);
    ASSERT_EQ(hashes, LeafHashesOnCpu(of_range));
    EXPECT_EQ(source.boxes.memory.Copy(), memory_before);
    EXPECT_EQ(source.factors.Copy(), factors_before);
  }
}

TEST(QuantizedElementsTest, AreCopiedAsByTheTwinAndNothingElseIsWritten) {
  for (uint64_t seed = 100; seed < 180; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    BoxesWithFactors source(random);
    BoxMemory destination({.packed_bytes = random.Between(16, 5 * kLeafBytes / 2)}, random);
    const Range range(std::min(source.boxes.packed_bytes, destination.packed_bytes), random);
    const CopyArguments arguments = {
        .sources = source.boxes.boxes.data(),
        .destinations = destination.boxes.data(),
        .source_count = source.count(),
        .destination_count = static_cast<int32_t>(destination.boxes.size()),
        .begin = range.begin,
        .end = range.end};
    const std::vector<std::byte> before(destination.memory.bytes().begin(),
                                        destination.memory.bytes().end());
    CopyOnCpu(source.boxes.boxes, destination.boxes, {range.begin, range.end}, kTypes);
    const std::vector<std::byte> expected = destination.memory.Copy();
    std::ranges::copy(before, destination.memory.data());
    HostKernelOf("crossmesh_copy_bf16_as_f8_e4m3").run(range.leaves(), &arguments);
    ASSERT_EQ(destination.memory.Copy(), expected);
  }
}

// A matrix with its scales, its factors, and the boxes of its rows.
struct Matrix {
  explicit Matrix(RandomSource& random)
      : rows(random.Between(1, 400)),
        columns(random.OneIn(2) ? 128 * random.Between(1, 3) : random.Between(1, 400)),
        memory(2 * rows * columns, random),
        scales(4 * ScaleBlocks(rows) * ScaleBlocks(columns), random),
        factors(4 * ScaleBlocks(rows) * ScaleBlocks(columns), random) {
    MakeOrdinary(memory, random);
    box = {.address = memory.address(),
           .rows = rows,
           .columns = columns,
           .pitch_bytes = 2 * columns,
           .scales_address = scales.address(),
           .scales_pitch_bytes = 4 * ScaleBlocks(columns),
           .factors_address = factors.address()};
    for (int64_t row = 0; row < rows; ++row) {
      list.AppendQuantized(memory.address() + 2 * row * columns, columns,
                           factors.address() + row / kScaleBlock * box.scales_pitch_bytes);
    }
  }

  int64_t rows;
  int64_t columns;
  KernelMemory memory;
  KernelMemory scales;
  KernelMemory factors;
  QuantizedBox box;
  KernelBoxList list;
};

TEST(QuantizedElementsTest, HaveTheFactorsAndScalesThatQuantizingWritesWithoutPacking) {
  for (uint64_t seed = 200; seed < 240; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    Matrix matrix(random);
    const QuantizeArguments quantize = {.boxes = &matrix.box, .box_count = 1};
    HostKernelOf("crossmesh_quantize")
        .run(static_cast<int32_t>(ScaleBlocks(matrix.rows) * ScaleBlocks(matrix.columns)),
             &quantize);
    const std::vector<std::byte> scales = matrix.scales.Copy();
    const std::vector<std::byte> factors = matrix.factors.Copy();

    const int64_t bytes = matrix.list.packed_bytes();
    KernelMemory packed(bytes, random);
    const PackArguments pack = {.boxes = matrix.list.boxes().data(),
                                .box_count = static_cast<int32_t>(matrix.list.boxes().size()),
                                .end = bytes,
                                .packed = packed.data()};
    HostKernelOf("crossmesh_pack_bf16_as_f8_e4m3")
        .run(static_cast<int32_t>(LeavesOf(0, bytes)), &pack);

    const std::vector<std::byte> expected = QuantizeOnCpu({&matrix.box, 1});
    ASSERT_TRUE(std::ranges::equal(packed.bytes(), expected));
    // The twin has written its scales and factors over the same memory.
    ASSERT_EQ(scales, matrix.scales.Copy());
    ASSERT_EQ(factors, matrix.factors.Copy());
  }
}

}  // namespace
}  // namespace crossmesh
