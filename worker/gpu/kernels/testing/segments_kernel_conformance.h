// The part of kernel_conformance.h for launches of several segments.

#pragma once

#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/testing/copy_case.h"
#include "worker/gpu/kernels/testing/kernel_conformance_fixture.h"
#include "worker/gpu/kernels/testing/pack_case.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"
#include "worker/gpu/kernels/testing/segments_case.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(KernelConformanceTest, OneLaunchPacksSegmentsOfManyClassesAndWritesNothingElse) {
  for (const KernelOfTypes& kernel : kPacks) {
    for (int64_t seed = 0; seed < RandomCases(25); ++seed) {
      SCOPED_TRACE(absl::StrCat(kernel.name, ", seed ", seed));
      RandomSource random(seed);
      SegmentsCase many(kernel, random);
      const std::vector<std::vector<std::byte>> memory_before = many.memory.Copies();
      const std::vector<std::byte> packed_before = many.packed.Copy();
      // What the places hold then: first by the reference implementation, then as it was again.
      for (size_t i = 0; i < many.segments.size(); ++i) {
        const PackSegment& segment = many.segments[i];
        const std::vector<std::byte> whole =
            PackOnCpu(many.memory.classes[i].boxes, kernel.types.from, kernel.types.to);
        std::copy(whole.begin() + segment.begin, whole.begin() + segment.end,
                  many.PackedOf(segment).begin());
      }
      const std::vector<std::byte> expected = many.packed.Copy();
      const std::vector<uint64_t> expected_hashes = many.HashesOfPacked();
      std::ranges::copy(packed_before, many.packed.whole().begin());

      ASSERT_NO_FATAL_FAILURE(Launch(many.LaunchOf(kernel.name, many.Arguments())));
      ASSERT_EQ(many.packed.Copy(), expected);
      ASSERT_EQ(many.hashes, expected_hashes);
      EXPECT_EQ(many.memory.Copies(), memory_before);
    }
  }
}

TEST_P(KernelConformanceTest, OneLaunchUnpacksSegmentsOfManyClassesAndWritesNothingElse) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    SegmentsCase many(kPlainPack, random);
    const std::vector<std::vector<std::byte>> before = many.memory.Copies();
    std::vector<uint64_t> expected_root_hashes(many.root_hashes_to.size());
    for (size_t i = 0; i < many.segments.size(); ++i) {
      const PackSegment& segment = many.segments[i];
      const BoxMemory& one = many.memory.classes[i];
      std::vector<std::byte> packed = PackOnCpu(one.boxes, DataType::kU8, DataType::kU8);
      std::ranges::copy(many.PackedOf(segment), packed.begin() + segment.begin);
      UnpackOnCpu(one.boxes, packed);
      std::copy_n(many.root_hashes.begin() + segment.first_root_hash,
                  LeavesOf(segment.begin, segment.end),
                  expected_root_hashes.begin() + segment.first_hash);
    }
    const std::vector<std::vector<std::byte>> expected = many.memory.Copies();
    for (size_t i = 0; i < before.size(); ++i) {
      std::ranges::copy(before[i], many.memory.classes[i].memory.whole().begin());
    }

    PackArguments arguments = many.Arguments();
    arguments.root_hashes = many.root_hashes.data();
    arguments.root_hashes_to = many.root_hashes_to.data();
    ASSERT_NO_FATAL_FAILURE(Launch(many.LaunchOf("crossmesh_unpack", arguments)));
    ASSERT_EQ(many.memory.Copies(), expected);
    EXPECT_EQ(many.hashes, many.HashesOfPacked());
    EXPECT_EQ(many.root_hashes_to, expected_root_hashes);
  }
}

TEST_P(KernelConformanceTest, OneLaunchCopiesSegmentsOfManyClassesAndWritesNothingElse) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    CopySegmentsCase many(kCopy, random);
    const std::vector<std::vector<std::byte>> sources_before = many.sources.Copies();
    const std::vector<std::vector<std::byte>> expected = many.CopyByReference();
    CopyArguments arguments = many.Arguments();
    arguments.source_hashes = many.source_hashes.data();
    arguments.destination_hashes = many.destination_hashes.data();
    ASSERT_NO_FATAL_FAILURE(Launch(many.LaunchOf(kCopy.name, arguments)));
    ASSERT_EQ(many.destinations.Copies(), expected);
    EXPECT_EQ(many.sources.Copies(), sources_before);
    EXPECT_EQ(many.source_hashes, many.Hashes());
    EXPECT_EQ(many.destination_hashes, many.Hashes());
  }
}

TEST_P(KernelConformanceTest, OneLaunchConvertsSegmentsOfManyClasses) {
  for (const KernelOfTypes& kernel : kConvertingCopies) {
    for (int64_t seed = 0; seed < RandomCases(15); ++seed) {
      SCOPED_TRACE(absl::StrCat(kernel.name, ", seed ", seed));
      RandomSource random(seed);
      CopySegmentsCase many(kernel, random);
      const std::vector<std::vector<std::byte>> expected = many.CopyByReference();
      ASSERT_NO_FATAL_FAILURE(Launch(many.LaunchOf(kernel.name, many.Arguments())));
      ASSERT_EQ(many.destinations.Copies(), expected);
    }
  }
}

}  // namespace crossmesh
