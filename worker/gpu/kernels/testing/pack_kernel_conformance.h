// The part of kernel_conformance.h for packing, converting and hashing.

#pragma once

#include "common/mesh/data_type.h"
#include "common/numbers/number_formats.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/element_scaling.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/kernel_conformance_fixture.h"
#include "worker/gpu/kernels/testing/kernel_of_types.h"
#include "worker/gpu/kernels/testing/pack_case.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(KernelConformanceTest, PacksAndHashesAsTheReferenceAndWritesNothingElse) {
  for (const KernelOfTypes& kernel : kPacks) {
    for (int64_t seed = 0; seed < RandomCases(60); ++seed) {
      SCOPED_TRACE(absl::StrCat(kernel.name, ", seed ", seed));
      RandomSource random(seed);
      PackCase one(kernel, random);
      const std::vector<std::byte> memory_before = one.boxes.memory.Copy();
      const std::vector<std::byte> factors_before = one.boxes.factors.Copy();
      std::vector<std::byte> packed_before = one.packed.Copy();
      ASSERT_NO_FATAL_FAILURE(Launch(one.LaunchOf(kernel.name, one.Arguments())));

      const std::vector<std::byte> expected =
          PackOnCpu(one.boxes.boxes, kernel.types.from, kernel.types.to);
      ASSERT_TRUE(std::ranges::equal(one.packed.bytes(), one.Of(expected)));
      ASSERT_EQ(one.leaf_hashes, LeafHashesOnCpu(one.Of(expected)));
      EXPECT_EQ(one.boxes.memory.Copy(), memory_before);
      EXPECT_EQ(one.boxes.factors.Copy(), factors_before);
      std::ranges::copy(one.Of(expected), packed_before.begin() + kPieceBytes);
      EXPECT_EQ(one.packed.Copy(), packed_before);
    }
  }
}

TEST_P(KernelConformanceTest, HashesWithoutPackingAndPacksWithoutHashing) {
  for (const KernelOfTypes& kernel : kPacks) {
    for (uint64_t seed = 100; seed < 120; ++seed) {
      SCOPED_TRACE(absl::StrCat(kernel.name, ", seed ", seed));
      RandomSource random(seed);
      PackCase one(kernel, random);
      PackArguments arguments = one.Arguments();
      const std::vector<std::byte> before = one.packed.Copy();
      arguments.packed = nullptr;
      ASSERT_NO_FATAL_FAILURE(Launch(one.LaunchOf(kernel.name, arguments)));
      EXPECT_EQ(one.packed.Copy(), before);

      arguments.packed = one.packed.data();
      arguments.leaf_hashes = nullptr;
      ASSERT_NO_FATAL_FAILURE(Launch(one.LaunchOf(kernel.name, arguments)));
      EXPECT_EQ(one.leaf_hashes, LeafHashesOnCpu(one.packed.bytes()));
    }
  }
}

// All numbers of 16 bits; of 32 bits these, the middles to the next ones, and what is beside.
inline std::vector<uint32_t> TellingNumbers(DataType type) {
  std::vector<uint32_t> numbers;
  for (uint32_t bits = 0; bits < uint32_t{1} << 16; ++bits) {
    if (type != DataType::kF32) {
      numbers.push_back(bits);
      continue;
    }
    const uint32_t f16 = F16::Widen(static_cast<uint16_t>(bits));
    const uint32_t bf16 = Bf16::Widen(static_cast<uint16_t>(bits));
    for (const uint32_t near : {f16, f16 + (1 << 12), bf16, bf16 + (1 << 15)}) {
      for (uint32_t i = 0; i < 3; ++i) numbers.push_back(near + i - 1);
    }
  }
  return numbers;
}

TEST_P(KernelConformanceTest, TellingNumbersAreConvertedAsByTheReference) {
  for (const KernelOfTypes& kernel : kPacks) {
    if (kernel.types.from == kernel.types.to) continue;
    SCOPED_TRACE(kernel.name);
    RandomSource random(1);
    const std::vector<uint32_t> numbers = TellingNumbers(kernel.types.from);
    const int64_t item_bytes = ItemBytes(kernel.types.from);
    const int64_t row_bytes = std::ssize(numbers) * item_bytes;
    KernelMemory memory(row_bytes, random);
    for (size_t i = 0; i < numbers.size(); ++i) {
      std::memcpy(memory.data() + i * item_bytes, &numbers[i], item_bytes);
    }
    KernelMemory ones(ScaleBlocks(std::ssize(numbers)) * static_cast<int64_t>(sizeof(float)),
                      random);
    for (int64_t at = 0; at < std::ssize(ones.bytes()); at += sizeof(float)) {
      StoreAligned(ones.address() + at, 1.0F);
    }
    KernelBox box = OneRow(memory.address(), row_bytes);
    box.factors_address = ones.address();
    const int64_t packed_bytes = std::ssize(numbers) * ItemBytes(kernel.types.to);
    KernelMemory packed(packed_bytes, random);
    const PackSegment segment = OnlySegment({.end = packed_bytes}, {&box, 1});
    ASSERT_NO_FATAL_FAILURE(Launch(
        {.kernel = kernel.name,
         .blocks = LeavesOf(0, packed_bytes),
         .arguments =
             PackArguments{
                 .boxes = &box, .segments = &segment, .segment_count = 1, .packed = packed.data()},
         .memory = {memory.whole(), packed.whole(), ones.whole()}}));
    EXPECT_TRUE(std::ranges::equal(packed.bytes(),
                                   PackOnCpu({&box, 1}, kernel.types.from, kernel.types.to)));
  }
}

TEST_P(KernelConformanceTest, EveryLengthIsHashedAsByTheLibrary) {
  RandomSource random(2);
  KernelMemory memory(3 * kLeafBytes, random);
  std::vector<int64_t> lengths;
  for (int64_t bytes = 1; bytes <= 2200; ++bytes) lengths.push_back(bytes);
  for (int i = 0; i < 200; ++i) lengths.push_back(random.Between(2200, 3 * kLeafBytes));
  for (const int64_t edge : {kLeafBytes - 1024, kLeafBytes - 64, kLeafBytes, 2 * kLeafBytes}) {
    for (int64_t near = -20; near <= 20; ++near) lengths.push_back(edge + near);
  }
  for (const int64_t bytes : lengths) {
    const KernelBox box = OneRow(memory.address(), bytes);
    const PackSegment segment = OnlySegment({.end = bytes}, {&box, 1});
    std::vector<uint64_t> hashes(LeavesOf(0, bytes));
    ASSERT_NO_FATAL_FAILURE(Launch({.kernel = "crossmesh_pack",
                                    .blocks = std::ssize(hashes),
                                    .arguments = PackArguments{.boxes = &box,
                                                               .segments = &segment,
                                                               .segment_count = 1,
                                                               .leaf_hashes = hashes.data()},
                                    .memory = {memory.whole(), BytesOf(hashes)}}));
    ASSERT_EQ(hashes, LeafHashesOnCpu(memory.bytes().first(static_cast<size_t>(bytes)))) << bytes;
  }
}

}  // namespace crossmesh
