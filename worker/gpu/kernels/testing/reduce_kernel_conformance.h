// The part of kernel_conformance.h for reductions: the bits of the host's.

#pragma once

#include "common/mesh/data_type.h"
#include "common/mesh/reduction.h"
#include "common/numbers/element_reducer.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/kernel.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/kernel_conformance_fixture.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

inline constexpr DataType kReducedTypes[] = {
    DataType::kU8,  DataType::kI8,  DataType::kI16, DataType::kU16, DataType::kF16, DataType::kBF16,
    DataType::kI32, DataType::kU32, DataType::kF32, DataType::kI64, DataType::kU64, DataType::kF64};

// Summands of random bits in one memory, and rows with gaps between them in another.
struct ReduceCase {
  ReduceCase(DataType of_type, RandomSource& random)
      : type(of_type),
        name(ReducingKernelName(of_type)),
        reduction({.kind = static_cast<ReductionKind>(random.Below(3))}) {
    if (reduction.kind == ReductionKind::kSum && random.OneIn(2)) {
      reduction.divisor = random.Between(1, 100);
    }
    int64_t place = 0;
    int64_t to_place = 0;
    for (int64_t i = random.Between(1, 3); i > 0; --i) {
      const int64_t rows = random.Between(1, 5);
      const int64_t elements = random.OneIn(3) ? random.Between(1, 9) : random.Between(1, 6000);
      ReductionSegment segment{.address = static_cast<uint64_t>(place),
                               .bytes = rows * elements * ItemBytes(type),
                               .to_address = static_cast<uint64_t>(to_place),
                               .row_bytes = elements * ItemBytes(type),
                               .summands = static_cast<int32_t>(random.Between(1, 9)),
                               .first_block = static_cast<int32_t>(blocks)};
      segment.distance_bytes = segment.bytes + random.Below(4) * ItemBytes(type);
      segment.to_pitch_bytes = segment.row_bytes + random.Below(4) * ItemBytes(type);
      place += segment.summands * segment.distance_bytes;
      to_place += rows * segment.to_pitch_bytes;
      blocks += (segment.bytes + kReducedBytesOfBlock - 1) / kReducedBytesOfBlock;
      segments.push_back(segment);
    }
    memory = KernelMemory(place, random);
    reduced = KernelMemory(to_place, random);
    for (ReductionSegment& segment : segments) {
      segment.address += memory.address();
      segment.to_address += reduced.address();
    }
  }

  KernelLaunch Run() {
    return {.kernel = name,
            .blocks = blocks,
            .arguments = ReduceArguments{.segments = segments.data(),
                                         .segment_count = static_cast<int32_t>(segments.size()),
                                         .kind = static_cast<KernelReduction>(reduction.kind),
                                         .divisor = reduction.divisor},
            .memory = {memory.whole(), reduced.whole()}};
  }
  // What the host makes of it, which leaves the memory as it was.
  std::vector<std::byte> ReduceOnCpu() {
    const std::vector<std::byte> before = reduced.Copy();
    for (const ReductionSegment& segment : segments) {
      for (int64_t row = 0; row * segment.row_bytes < segment.bytes; ++row) {
        ReducerFor(type, reduction.kind)(
            {.first = MemoryAt(segment.address + row * segment.row_bytes),
             .distance_bytes = segment.distance_bytes,
             .count = segment.summands},
            MemoryAt(segment.to_address + row * segment.to_pitch_bytes), segment.row_bytes,
            reduction.divisor);
      }
    }
    std::vector<std::byte> made = reduced.Copy();
    std::ranges::copy(before, reduced.whole().begin());
    return made;
  }

  const DataType type;
  const std::string name;
  Reduction reduction;
  std::vector<ReductionSegment> segments;
  int64_t blocks = 0;
  KernelMemory memory;
  KernelMemory reduced;
};

TEST_P(KernelConformanceTest, ReducesToTheBitsOfTheHostAndWritesNothingElse) {
  for (const DataType type : kReducedTypes) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(absl::StrCat(DataTypeName(type), ", seed ", seed));
      RandomSource random(seed);
      ReduceCase one(type, random);
      const std::vector<std::byte> memory_before = one.memory.Copy();
      const std::vector<std::byte> reduced = one.ReduceOnCpu();
      ASSERT_NO_FATAL_FAILURE(Launch(one.Run()));
      ASSERT_EQ(one.reduced.Copy(), reduced);
      EXPECT_EQ(one.memory.Copy(), memory_before);
    }
  }
}

}  // namespace crossmesh
