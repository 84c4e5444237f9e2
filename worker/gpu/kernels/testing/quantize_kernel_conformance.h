// The part of kernel_conformance.h for quantizing.

#pragma once

#include "common/numbers/number_formats.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/cpu_twins.h"
#include "worker/gpu/kernels/testing/kernel_conformance_fixture.h"
#include "worker/gpu/kernels/testing/quantize_case.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(KernelConformanceTest, QuantizesAsTheTwinAndWritesNothingElse) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    QuantizeCase one(random);
    const std::vector<std::byte> memory_before = one.memory.Copy();
    KernelMemory packed(one.packed_bytes, random);
    std::vector<std::byte> packed_before = packed.Copy();
    ASSERT_NO_FATAL_FAILURE(Launch(one.RunOf(0, one.packed_bytes, packed)));
    const std::vector<std::byte> scales = one.scales.Copy();

    const std::vector<std::byte> expected = QuantizeOnCpu(one.boxes);
    std::ranges::copy(expected, packed_before.begin() + kPieceBytes);
    ASSERT_EQ(packed.Copy(), packed_before);
    // The twin has written its scales over the same memory.
    ASSERT_EQ(scales, one.scales.Copy());
    EXPECT_EQ(one.memory.Copy(), memory_before);
  }
}

TEST_P(KernelConformanceTest, ARangeIsQuantizedAsItIsWithAll) {
  for (uint64_t seed = 100; seed < 160; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    QuantizeCase one(random);
    const std::vector<std::byte> all = QuantizeOnCpu(one.boxes);
    const std::vector<std::byte> scales = one.scales.Copy();
    const int64_t begin = random.Below(one.packed_bytes);
    const int64_t end = random.Between(begin + 1, one.packed_bytes);
    KernelMemory packed(end - begin, random);
    std::vector<std::byte> expected = packed.Copy();
    ASSERT_NO_FATAL_FAILURE(Launch(one.RunOf(begin, end, packed)));
    std::ranges::copy(std::span(all).subspan(begin, end - begin), expected.begin() + kPieceBytes);
    ASSERT_EQ(packed.Copy(), expected);
    ASSERT_EQ(one.scales.Copy(), scales);
  }
}

// A row of numbers that is one block.
struct QuantizedRow {
  explicit QuantizedRow(const std::vector<float>& row)
      : random(1),
        memory(2 * std::ssize(row), random),
        packed(std::ssize(row), random),
        scale(sizeof(float), random),
        box{.address = memory.address(),
            .rows = 1,
            .columns = std::ssize(row),
            .pitch_bytes = 2 * std::ssize(row),
            .scales_address = scale.address(),
            .scales_pitch_bytes = 4} {
    for (size_t i = 0; i < row.size(); ++i) {
      StoreAligned(memory.address() + 2 * i, Bf16::Narrow(BitsOf(row[i])));
    }
  }

  KernelRun Run() {
    return {.kernel = "crossmesh_quantize",
            .blocks = 1,
            .arguments =
                QuantizeArguments{
                    .boxes = &box, .box_count = 1, .end = box.columns, .packed = packed.data()},
            .memory = {memory.whole(), packed.whole(), scale.whole()}};
  }
  float Scale() { return FloatOf(LoadAligned<uint32_t>(scale.address())); }
  std::vector<int> Fp8Values() {
    std::vector<int> values;
    for (const std::byte byte : packed.bytes()) values.push_back(std::to_integer<int>(byte));
    return values;
  }

  RandomSource random;
  KernelMemory memory;
  KernelMemory packed;
  KernelMemory scale;
  QuantizedBox box;
};

TEST_P(KernelConformanceTest, TheLargestOfABlockBecomes448) {
  QuantizedRow row({896, -896, 2, 0, -0.0F, 448, 1});
  ASSERT_NO_FATAL_FAILURE(Launch(row.Run()));
  EXPECT_EQ(row.Scale(), 2);
  EXPECT_EQ(row.Fp8Values(), (std::vector<int>{0x7E, 0xFE, 0x38, 0x00, 0x80, 0x76, 0x30}));
}

TEST_P(KernelConformanceTest, ABlockOfZerosHasAScaleAndZeros) {
  QuantizedRow row({0, -0.0F, 0});
  ASSERT_NO_FATAL_FAILURE(Launch(row.Run()));
  EXPECT_EQ(row.Scale(), std::ldexp(1.0F, -100) / 448);
  EXPECT_EQ(row.Fp8Values(), (std::vector<int>{0x00, 0x80, 0x00}));
}

TEST_P(KernelConformanceTest, WhatIsNotFiniteDoesNotCountForTheScale) {
  QuantizedRow row({448, INFINITY, -INFINITY, NAN, 1});
  ASSERT_NO_FATAL_FAILURE(Launch(row.Run()));
  EXPECT_EQ(row.Scale(), 1);
  EXPECT_EQ(row.Fp8Values(), (std::vector<int>{0x7E, 0x7E, 0xFE, 0x7F, 0x38}));
}

}  // namespace crossmesh
