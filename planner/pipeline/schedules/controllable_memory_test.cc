#include "planner/pipeline/schedules/controllable_memory.h"

#include "common/testing/status_matchers.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

struct Figures {
  int64_t peak = 0;  // chunks of microbatches, on the fullest rank
  double seconds = 0;
  double bubble = 0;
};

Figures FiguresOf(const absl::StatusOr<Schedule>& schedule, int32_t ranks) {
  const PipelineProfile profile = PlacedBy(VRank, ranks, UniformProfile(2 * ranks, 1, 0));
  EXPECT_OK(schedule);
  const absl::StatusOr<PipelineProof> proof = ProvePipeline(*schedule, profile);
  EXPECT_OK(proof);
  const absl::StatusOr<OpTable> ops = OpTable::Create(*schedule, profile);
  const absl::StatusOr<PipelineTimeline> run = SimulatePipeline(*ops, TransferModel::kLatency);
  const auto peak = std::ranges::max_element(proof->memory, {}, &RankMemory::bytes);
  return {peak->bytes().value(), run->seconds, BubbleRatio(*ops, *run)};
}

TEST(ControllableMemoryTest, HoldsWhatIsPublished) {
  for (const int32_t ranks : {3, 4, 6, 8}) {
    SCOPED_TRACE(ranks);
    // In microbatches of both chunks, rounded down: (P + 4) / 3 and (P + 2) / 2.
    EXPECT_EQ(FiguresOf(MakeMemoryPattern(MemoryBlock::kMin, ranks, 4 * ranks), ranks).peak / 2,
              (ranks + 4) / 3);
    EXPECT_EQ(FiguresOf(MakeMemoryPattern(MemoryBlock::kHalf, ranks, 4 * ranks), ranks).peak / 2,
              (ranks + 2) / 2);
  }
}

TEST(ControllableMemoryTest, FilledBubblesSaveTimeAndTakeNoMemory) {
  for (const MemoryBlock block : {MemoryBlock::kMin, MemoryBlock::kHalf}) {
    for (int32_t ranks = 1; ranks <= 9; ++ranks) {
      for (const int32_t m : {1, ranks, 2 * ranks, 3 * ranks}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", m, " microbatches"));
        const Figures pattern = FiguresOf(MakeMemoryPattern(block, ranks, m), ranks);
        const Figures filled = FiguresOf(MakeControllableMemory(block, ranks, m), ranks);
        EXPECT_LE(filled.peak, pattern.peak);
        EXPECT_LE(filled.seconds, pattern.seconds);
      }
    }
  }
}

// For 8 ranks and 24 microbatches 11 % and 15 % are published.
TEST(ControllableMemoryTest, BubblesAreNearThePublishedOnes) {
  EXPECT_LE(FiguresOf(MakeControllableMemory(MemoryBlock::kHalf, 8, 24), 8).bubble, 0.117);
  EXPECT_LE(FiguresOf(MakeControllableMemory(MemoryBlock::kMin, 8, 24), 8).bubble, 0.148);
}

}  // namespace
}  // namespace crossmesh
