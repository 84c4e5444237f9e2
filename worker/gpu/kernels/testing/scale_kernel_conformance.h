// The part of kernel_conformance.h for scales, and for what is quantized by them.

#pragma once

#include "common/numbers/number_formats.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/kernel_conformance_fixture.h"
#include "worker/gpu/kernels/testing/pack_case.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"
#include "worker/gpu/kernels/testing/scale_case.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(KernelConformanceTest, FindsScalesAndFactorsAsTheReferenceAndWritesNothingElse) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    ScaleCase one(random);
    const std::vector<std::byte> memory_before = one.memory.Copy();
    const std::vector<std::byte> scales_before = one.scales.Copy();
    const std::vector<std::byte> factors_before = one.factors.Copy();
    ScaleOnCpu(one.matrices);
    const std::vector<std::byte> scales = one.scales.Copy();
    const std::vector<std::byte> factors = one.factors.Copy();
    std::ranges::copy(scales_before, one.scales.whole().begin());
    std::ranges::copy(factors_before, one.factors.whole().begin());

    ASSERT_NO_FATAL_FAILURE(Launch(one.Run()));
    ASSERT_EQ(one.scales.Copy(), scales);
    ASSERT_EQ(one.factors.Copy(), factors);
    EXPECT_EQ(one.memory.Copy(), memory_before);
  }
}

// A row of numbers that is one block, and what is packed of it.
struct QuantizedRow {
  explicit QuantizedRow(const std::vector<float>& row)
      : random(1),
        memory(2 * std::ssize(row), random),
        packed(std::ssize(row), random),
        scale(sizeof(float), random),
        factor(sizeof(float), random),
        matrix{.address = memory.address(),
               .rows = 1,
               .columns = std::ssize(row),
               .pitch_bytes = 2 * std::ssize(row),
               .scales_address = scale.address(),
               .factors_address = factor.address(),
               .scales_pitch_bytes = 4},
        box(OneRow(memory.address(), matrix.pitch_bytes)),
        segment(OnlySegment({.end = matrix.columns}, {&box, 1})) {
    box.factors_address = factor.address();
    for (size_t i = 0; i < row.size(); ++i) {
      StoreAligned(memory.address() + 2 * i, Bf16::Narrow(BitsOf(row[i])));
    }
  }

  KernelLaunch Scale() {
    return {.kernel = "crossmesh_scale",
            .blocks = 1,
            .arguments = ScaleArguments{.matrices = &matrix, .matrix_count = 1},
            .memory = {memory.whole(), scale.whole(), factor.whole()}};
  }
  KernelLaunch Pack() {
    return {
        .kernel = "crossmesh_pack_bf16_as_f8_e4m3",
        .blocks = 1,
        .arguments =
            PackArguments{
                .boxes = &box, .segments = &segment, .segment_count = 1, .packed = packed.data()},
        .memory = {memory.whole(), packed.whole(), factor.whole()}};
  }
  float ScaleFound() { return LoadAligned<float>(scale.address()); }
  std::vector<int> Fp8Values() {
    std::vector<int> values;
    for (const std::byte byte : packed.bytes()) values.push_back(std::to_integer<int>(byte));
    return values;
  }

  RandomSource random;
  KernelMemory memory;
  KernelMemory packed;
  KernelMemory scale;
  KernelMemory factor;
  ScaledMatrix matrix;
  KernelBox box;
  PackSegment segment;
};

TEST_P(KernelConformanceTest, TheLargestOfABlockBecomes448) {
  QuantizedRow row({896, -896, 2, 0, -0.0F, 448, 1});
  ASSERT_NO_FATAL_FAILURE(Launch(row.Scale()));
  ASSERT_NO_FATAL_FAILURE(Launch(row.Pack()));
  EXPECT_EQ(row.ScaleFound(), 2);
  EXPECT_EQ(row.Fp8Values(), (std::vector<int>{0x7E, 0xFE, 0x38, 0x00, 0x80, 0x76, 0x30}));
}

TEST_P(KernelConformanceTest, ABlockOfZerosHasAScaleAndZeros) {
  QuantizedRow row({0, -0.0F, 0});
  ASSERT_NO_FATAL_FAILURE(Launch(row.Scale()));
  ASSERT_NO_FATAL_FAILURE(Launch(row.Pack()));
  EXPECT_EQ(row.ScaleFound(), std::ldexp(1.0F, -100) / 448);
  EXPECT_EQ(row.Fp8Values(), (std::vector<int>{0x00, 0x80, 0x00}));
}

TEST_P(KernelConformanceTest, WhatIsNotFiniteDoesNotCountForTheScale) {
  QuantizedRow row({448, INFINITY, -INFINITY, NAN, 1});
  ASSERT_NO_FATAL_FAILURE(Launch(row.Scale()));
  ASSERT_NO_FATAL_FAILURE(Launch(row.Pack()));
  EXPECT_EQ(row.ScaleFound(), 1);
  EXPECT_EQ(row.Fp8Values(), (std::vector<int>{0x7E, 0x7E, 0xFE, 0x7F, 0x38}));
}

}  // namespace crossmesh
