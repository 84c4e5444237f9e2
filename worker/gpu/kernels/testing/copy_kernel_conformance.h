// The part of kernel_conformance.h for copying.

#pragma once

#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/copy_case.h"
#include "worker/gpu/kernels/testing/kernel_conformance_fixture.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"

#include <cstdint>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(KernelConformanceTest, CopiesAndHashesAsTheReferenceAndWritesNothingElse) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    CopyCase one(kCopy, random);
    const std::vector<std::byte> sources_before = one.sources.memory.Copy();
    const std::vector<std::byte> expected = one.CopyByReference();
    ASSERT_NO_FATAL_FAILURE(Launch(one.LaunchOf(one.Arguments())));
    ASSERT_EQ(one.destinations.memory.Copy(), expected);
    EXPECT_EQ(one.sources.memory.Copy(), sources_before);
    const std::vector<uint64_t> hashes = LeafHashesOnCpu(one.Packed());
    ASSERT_EQ(one.source_hashes, hashes);
    ASSERT_EQ(one.destination_hashes, hashes);
  }
}

TEST_P(KernelConformanceTest, CopyingHashesEitherSideOrNone) {
  for (uint64_t seed = 200; seed < 230; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    CopyCase one(kCopy, random);
    const std::vector<std::byte> expected = one.CopyByReference();
    const std::vector<uint64_t> hashes = LeafHashesOnCpu(one.Packed());
    const std::vector<uint64_t> none(hashes.size());
    const bool of_source = random.OneIn(2);
    const bool of_destination = !of_source && random.OneIn(2);
    CopyArguments arguments = one.Arguments();
    if (!of_source) arguments.source_hashes = nullptr;
    if (!of_destination) arguments.destination_hashes = nullptr;
    ASSERT_NO_FATAL_FAILURE(Launch(one.LaunchOf(arguments)));
    EXPECT_EQ(one.destinations.memory.Copy(), expected);
    EXPECT_EQ(one.source_hashes, of_source ? hashes : none);
    EXPECT_EQ(one.destination_hashes, of_destination ? hashes : none);
  }
}

TEST_P(KernelConformanceTest, ConvertsOnTheWayAsTheReferenceAndWritesNothingElse) {
  for (const KernelOfTypes& kernel : kConvertingCopies) {
    for (int64_t seed = 0; seed < RandomCases(60); ++seed) {
      SCOPED_TRACE(absl::StrCat(kernel.name, ", seed ", seed));
      RandomSource random(seed);
      CopyCase one(kernel, random);
      const std::vector<std::byte> sources_before = one.sources.memory.Copy();
      const std::vector<std::byte> factors_before = one.sources.factors.Copy();
      const std::vector<std::byte> expected = one.CopyByReference();
      CopyArguments arguments = one.Arguments();
      arguments.source_hashes = nullptr;
      arguments.destination_hashes = nullptr;
      ASSERT_NO_FATAL_FAILURE(Launch(one.LaunchOf(arguments)));
      ASSERT_EQ(one.destinations.memory.Copy(), expected);
      EXPECT_EQ(one.sources.memory.Copy(), sources_before);
      EXPECT_EQ(one.sources.factors.Copy(), factors_before);
    }
  }
}

TEST_P(KernelConformanceTest, TheDestinationsHashIsOfWhatArrivedAndNotOfWhatWasRead) {
  RandomSource random(1);
  KernelMemory from(2048, random);
  KernelMemory to(1024, random);
  const KernelBox source = OneRow(from.address(), 2048);
  // Two boxes on the same memory: only one of them can be there in the end.
  const KernelBox destinations[] = {OneRow(to.address(), 1024), OneRow(to.address(), 1024, 1024)};
  const CopySegment segment = {.end = 2048, .source_end = 1, .destination_end = 2};
  std::vector<uint64_t> source_hashes(1);
  std::vector<uint64_t> destination_hashes(1);
  ASSERT_NO_FATAL_FAILURE(Launch(
      {.kernel = kCopy.name,
       .blocks = 1,
       .arguments = CopyArguments{.sources = &source,
                                  .destinations = destinations,
                                  .segments = &segment,
                                  .segment_count = 1,
                                  .source_hashes = source_hashes.data(),
                                  .destination_hashes = destination_hashes.data()},
       .memory = {from.whole(), to.whole(), BytesOf(source_hashes), BytesOf(destination_hashes)}}));
  EXPECT_EQ(source_hashes, LeafHashesOnCpu(from.bytes()));
  EXPECT_EQ(destination_hashes,
            LeafHashesOnCpu(PackOnCpu(destinations, DataType::kU8, DataType::kU8)));
  EXPECT_NE(destination_hashes, source_hashes);
}

}  // namespace crossmesh
