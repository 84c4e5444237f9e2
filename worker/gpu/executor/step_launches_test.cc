#include "worker/gpu/executor/step_launches.h"

#include "common/testing/status_matchers.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/small_plans.h"
#include "worker/gpu/executor/class_boxes.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/executor/gpu_scales.h"
#include "worker/gpu/executor/testing/executor_rank.h"
#include "worker/gpu/kernels/kernel_launches.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class StepLaunchesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(rank_, ExecutorRank::Create(0, {})); }
  void TearDown() override { EXPECT_OK(rank_->Close()); }

  StepLaunches LaunchesOf(const CompiledPart& compiled, const TileMemory& memory) {
    const GpuTiles tiles = TilesOf(memory, compiled.device());
    const auto scales = GpuScales::Create(rank_->gpu(), compiled, tiles.source);
    EXPECT_OK(scales);
    const auto boxes = ClassBoxes::Create(compiled, **scales, tiles.destination);
    EXPECT_OK(boxes);
    return StepLaunches::Create(rank_->gpu(), compiled, *boxes, segments_);
  }
  using PackLaunch = StepLaunches::Launch<PackArguments>;
  std::span<const PackSegment> SegmentsOf(const PackLaunch& launch) const {
    return std::span(segments_.packs).subspan(launch.first_segment, launch.segments);
  }
  // Of all steps, and unpacks as well.
  std::vector<PackLaunch> AllPacks(const CompiledPart& compiled, const TileMemory& memory) {
    const StepLaunches launches = LaunchesOf(compiled, memory);
    std::vector<PackLaunch> all;
    for (int32_t step = 0; step < std::ssize(compiled.steps()); ++step) {
      std::ranges::copy(launches.packs(step), std::back_inserter(all));
      std::ranges::copy(launches.unpacks(step), std::back_inserter(all));
    }
    return all;
  }

  std::unique_ptr<ExecutorRank> rank_;
  LaunchSegments segments_;
};

TEST_F(StepLaunchesTest, ChunksOfAStepAreGroupedByTheirKernels) {
  const Plan plan = Made(ManyTensors({{40'000}, {50'000, true}, {70'000}, {80'000, true}}));
  ASSERT_OK_AND_ASSIGN(const CompiledParts parts,
                       CompiledPartsOf(plan, {.staging_bytes = 2 << 20}));
  const TileMemory memory(plan);
  const StepLaunches sends = LaunchesOf(*parts[0], memory);
  const StepLaunches receives = LaunchesOf(*parts[1], memory);
  ASSERT_EQ(parts[0]->steps().size(), parts[1]->steps().size());
  for (int32_t step = 0; step < std::ssize(parts[0]->steps()); ++step) {
    EXPECT_LE(sends.packs(step).size(), 2U);
    EXPECT_EQ(receives.unpacks(step).size(), 1U);
    int64_t segments = 0;
    for (const auto& launch : sends.packs(step)) segments += launch.segments;
    EXPECT_EQ(segments, parts[0]->steps()[step].packs.size());
  }
  EXPECT_EQ(sends.packs(0).size(), 2U);
  EXPECT_TRUE(sends.unpacks(0).empty());
  EXPECT_TRUE(receives.packs(0).empty());
  EXPECT_TRUE(receives.copies(0).empty());
}

TEST_F(StepLaunchesTest, SegmentsShareTheBlocksOfTheirLaunch) {
  const Plan plan = Made(ManyTensors({{40'000}, {30'000}, {100}}));
  ASSERT_OK_AND_ASSIGN(const CompiledParts parts,
                       CompiledPartsOf(plan, {.staging_bytes = 2 << 20}));
  const TileMemory memory(plan);
  for (const DeviceRank device : {0, 1}) {
    segments_ = {};
    for (const PackLaunch& launch : AllPacks(*parts[device], memory)) {
      int64_t blocks = 0;
      for (const PackSegment& segment : SegmentsOf(launch)) {
        EXPECT_EQ(segment.first_block, blocks);
        blocks += LeavesOf(segment.begin, segment.end);
      }
      EXPECT_EQ(launch.blocks, blocks);
    }
  }
}

// As a message lies in staging: its bytes, padded to 16, and its hashes.
TEST_F(StepLaunchesTest, HashesOfAChunkFollowItsBytesInStaging) {
  const Plan plan = Made(ManyTensors({{33}}));
  ASSERT_OK_AND_ASSIGN(const CompiledParts parts,
                       CompiledPartsOf(plan, {.staging_bytes = 1 << 20}));
  const TileMemory memory(plan);
  LaunchesOf(*parts[0], memory);
  LaunchesOf(*parts[1], memory);
  ASSERT_EQ(segments_.packs.size(), 2U);
  const auto [pack, unpack] = std::pair(segments_.packs[0], segments_.packs[1]);
  EXPECT_EQ(pack.first_hash * 8, pack.packed_offset + 80);
  EXPECT_EQ(unpack.first_root_hash * 8, unpack.packed_offset + 80);
  EXPECT_EQ(unpack.first_hash, 0);
}

TEST_F(StepLaunchesTest, CopiesOfAStepAreOneLaunchForEachKernel) {
  const Plan plan = Made(QuantizedOnOneDevice());
  ASSERT_OK_AND_ASSIGN(const CompiledParts parts, CompiledPartsOf(plan, {}));
  const TileMemory memory(plan);
  const StepLaunches launches = LaunchesOf(*parts[0], memory);
  // Elements and their scales.
  ASSERT_EQ(launches.copies(0).size(), 2U);
  EXPECT_EQ(launches.copies(0)[0].segments, 1);
  EXPECT_TRUE(launches.driver_copies(0).empty());
}

}  // namespace
}  // namespace crossmesh
