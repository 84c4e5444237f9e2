// What schedules refuse, and that what they make can run whatever the counts.

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/schedules/controllable_memory.h"
#include "planner/pipeline/schedules/dual_pipe.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/looped_bfs.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/sequence_split.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/schedules/zero_bubble.h"
#include "planner/pipeline/schedules/zero_bubble_v.h"
#include "planner/pipeline/testing/both_ways.h"
#include "planner/pipeline/testing/pipeline_vectors.h"

#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(SchedulesTest, ThereIsSomethingToDo) {
  EXPECT_THAT(MakeGpipe(0, 4), IsRefused("gpipe: expected at least 1 stages; found 0"));
  EXPECT_THAT(MakeGpipe(4, 0), IsRefused("gpipe: expected at least 1 microbatches; found 0"));
  EXPECT_THAT(MakeGpipe(-1, 4), IsRefused("stages"));
  EXPECT_THAT(MakeOneForwardOneBackward(4, 0), IsRefused("1f1b: "));
  EXPECT_THAT(MakeEagerOneForwardOneBackward(-1, 4), IsRefused("eager_1f1b: "));
  EXPECT_THAT(MakeLoopedBreadthFirst(2, 0, 4), IsRefused("chunks"));
  EXPECT_THAT(MakeZeroBubbleH1(0, 4), IsRefused("zb_h1: "));
  EXPECT_THAT(MakeZeroBubbleH2(4, 0), IsRefused("zb_h2: "));
  EXPECT_THAT(MakeZeroBubbleV(0, 4), IsRefused("zb_v: "));
  EXPECT_THAT(MakeControllableMemory(MemoryBlock::kMin, 2, 0), IsRefused("v_min: "));
  EXPECT_THAT(MakeControllableMemory(MemoryBlock::kHalf, 0, 2), IsRefused("v_half: "));
  EXPECT_THAT(MakeSequenceSplit(2, 4, 0), IsRefused("parts"));
  EXPECT_THAT(MakeWindowOrder(std::vector<int32_t>{2, 0}, 4), IsRefused("in a window; found 0"));
  EXPECT_THAT(MakeDelayedOrder(std::vector<DelayedStage>{{.leading = 0}}, 4),
              IsRefused("leading forward ops"));
  EXPECT_THAT(MakeDelayedOrder(std::vector<DelayedStage>{{.delay = -1}}, 4),
              IsRefused("at least 0 delayed gradients; found -1"));
}

TEST(SchedulesTest, InterleavedTakesWholeGroups) {
  EXPECT_OK(MakeInterleaved({.ranks = 4, .chunks = 2, .microbatches = 10}));
  EXPECT_THAT(MakeInterleaved({.ranks = 4, .chunks = 2, .microbatches = 9}),
              IsRefused("a multiple of 2, since they are taken in equal groups; found 9"));
  EXPECT_THAT(MakeInterleaved({.ranks = 4, .chunks = 2, .microbatches = 8, .group = 3}),
              IsRefused("a multiple of 3"));
  EXPECT_THAT(MakeInterleaved({.ranks = 4, .chunks = 2, .microbatches = 8, .group = 2}),
              IsRefused("at least 4 microbatches in a group"));
  EXPECT_OK(MakeInterleaved({.ranks = 4, .chunks = 2, .microbatches = 2}));
  EXPECT_THAT(MakeInterleaved({.ranks = 0, .chunks = 2, .microbatches = 2}), IsRefused("ranks"));
}

TEST(SchedulesTest, DualPipesNeedEnoughAndEvenCounts) {
  EXPECT_THAT(MakeDualPipe(3, 6), IsRefused("dual_pipe: expected at least 2 ranks, a multiple of "
                                            "2, since the two directions meet in the middle; "
                                            "found 3"));
  EXPECT_THAT(MakeDualPipe(4, 9), IsRefused("microbatches, a multiple of 2"));
  EXPECT_THAT(MakeDualPipe(4, 6), IsRefused("at least 8 microbatches"));
  EXPECT_THAT(MakeDualPipeV(4, 7), IsRefused("at least 8 microbatches"));
  EXPECT_OK(MakeDualPipeV(3, 7));
}

TEST(SchedulesTest, WhatIsMadeCanRun) {
  for (int32_t ranks = 1; ranks <= 7; ++ranks) {
    const PipelineProfile chain = UniformProfile(ranks, 1, 0.5);
    const PipelineProfile v = PlacedBy(VRank, ranks, UniformProfile(2 * ranks, 1, 0.5));
    const PipelineProfile looped = PlacedBy(LoopedRank, ranks, UniformProfile(3 * ranks, 1, 0.5));
    for (int32_t m = 1; m <= 3 * ranks + 1; ++m) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", m, " microbatches"));
      const auto expect_proof = [](const absl::StatusOr<Schedule>& schedule,
                                   const PipelineProfile& profile) {
        ASSERT_OK(schedule);
        EXPECT_OK(ProvePipeline(*schedule, profile));
        EXPECT_OK(ProvePipeline(DelayWeightGradients(*schedule), profile));
      };
      expect_proof(MakeGpipe(ranks, m), chain);
      expect_proof(MakeOneForwardOneBackward(ranks, m), chain);
      expect_proof(MakeEagerOneForwardOneBackward(ranks, m), chain);
      expect_proof(MakeZeroBubbleH1(ranks, m), chain);
      expect_proof(MakeZeroBubbleH2(ranks, m), chain);
      expect_proof(MakeSequenceSplit(ranks, m, 3), chain);
      expect_proof(MakeLoopedBreadthFirst(ranks, 3, m), looped);
      expect_proof(MakeZeroBubbleV(ranks, m), v);
      expect_proof(MakeControllableMemory(MemoryBlock::kMin, ranks, m), v);
      expect_proof(MakeControllableMemory(MemoryBlock::kHalf, ranks, m), v);
      if (m >= 2 * ranks) expect_proof(MakeDualPipeV(ranks, m), v);
      const auto interleaved = MakeInterleaved({.ranks = ranks, .chunks = 3, .microbatches = m});
      if (interleaved.ok()) {
        expect_proof(interleaved, looped);
        expect_proof(MakeInterleavedZeroBubble({.ranks = ranks, .chunks = 3, .microbatches = m}),
                     looped);
      }
      if (ranks % 2 == 0 && m % 2 == 0 && m >= 2 * ranks) {
        expect_proof(MakeDualPipe(ranks, m), BothWays(chain));
      }
    }
  }
}

}  // namespace
}  // namespace crossmesh
