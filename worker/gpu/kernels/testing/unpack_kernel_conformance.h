// The part of kernel_conformance.h for unpacking.

#pragma once

#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/kernel_conformance_fixture.h"
#include "worker/gpu/kernels/testing/pack_case.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(KernelConformanceTest, UnpacksAndHashesAsTheReferenceAndWritesNothingElse) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    PackCase one(kPlainPack, random);
    KernelMemory& memory = one.boxes.memory;
    const std::vector<std::byte> memory_before = memory.Copy();
    // What the boxes should hold then: what they hold, and in the range what comes.
    std::vector<std::byte> packed = PackOnCpu(one.boxes.boxes, DataType::kU8, DataType::kU8);
    std::ranges::copy(one.packed.bytes(), packed.begin() + one.range.begin);
    UnpackOnCpu(one.boxes.boxes, packed);
    const std::vector<std::byte> expected = memory.Copy();
    std::ranges::copy(memory_before, memory.whole().begin());

    ASSERT_NO_FATAL_FAILURE(Launch(one.LaunchOf("crossmesh_unpack", one.Arguments())));
    ASSERT_EQ(memory.Copy(), expected);
    ASSERT_EQ(one.leaf_hashes, LeafHashesOnCpu(one.packed.bytes()));
  }
}

TEST_P(KernelConformanceTest, UnpackingCopiesTheHashesThatCameWhetherItHashesOrNot) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    PackCase one(kPlainPack, random);
    std::vector<uint64_t> came(one.leaf_hashes.size());
    for (uint64_t& hash : came) hash = static_cast<uint64_t>(random.Below(int64_t{1} << 60));
    // One more than is copied.
    std::vector<uint64_t> kept(came.size() + 1, 7);
    PackArguments arguments = one.Arguments();
    arguments.root_hashes = came.data();
    arguments.root_hashes_to = kept.data();
    if (random.OneIn(2)) arguments.leaf_hashes = nullptr;
    KernelLaunch run = one.LaunchOf("crossmesh_unpack", arguments);
    run.memory.push_back(BytesOf(came));
    run.memory.push_back(BytesOf(kept));
    ASSERT_NO_FATAL_FAILURE(Launch(run));
    EXPECT_EQ(kept.back(), 7);
    kept.pop_back();
    EXPECT_EQ(kept, came);
  }
}

TEST_P(KernelConformanceTest, UnpackingHashesWhatArrivedAndNotWhatCame) {
  RandomSource random(1);
  KernelMemory memory(1024, random);
  KernelMemory packed(2048, random);
  // Two boxes on the same memory: only one of them can be there in the end.
  const KernelBox boxes[] = {OneRow(memory.address(), 1024), OneRow(memory.address(), 1024, 1024)};
  const PackSegment segment = OnlySegment({.end = 2048}, boxes);
  std::vector<uint64_t> hashes(1);
  ASSERT_NO_FATAL_FAILURE(Launch({.kernel = "crossmesh_unpack",
                                  .blocks = 1,
                                  .arguments = PackArguments{.boxes = boxes,
                                                             .segments = &segment,
                                                             .segment_count = 1,
                                                             .packed = packed.data(),
                                                             .leaf_hashes = hashes.data()},
                                  .memory = {memory.whole(), packed.whole(), BytesOf(hashes)}}));
  EXPECT_EQ(hashes, LeafHashesOnCpu(PackOnCpu(boxes, DataType::kU8, DataType::kU8)));
  EXPECT_NE(hashes, LeafHashesOnCpu(packed.bytes()));
}

}  // namespace crossmesh
