#include "planner/pipeline/schedules/dual_pipe.h"

#include "common/testing/status_matchers.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/testing/both_ways.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(DualPipeTest, BothWaysHasEveryStageTwice) {
  const PipelineProfile both = BothWays(UniformProfile(3, 1, 0.5));
  ASSERT_EQ(both.stages.size(), 6u);
  EXPECT_EQ(both.ranks(), 3);
  EXPECT_EQ(both.stages[3].rank, 2);
  EXPECT_EQ(both.stages[5].rank, 0);
  ASSERT_EQ(both.edges.size(), 4u);
  EXPECT_EQ(both.edges[2].from, 3);
  EXPECT_EQ(both.edges[2].to, 4);
  EXPECT_OK(Validate(both));
}

// Every rank does as the one at its place from the other end does, in the other direction.
TEST(DualPipeTest, IsTheSameFromBothEnds) {
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeDualPipe(6, 20));
  EXPECT_EQ(schedule.microbatches, 10);
  for (RankIndex rank = 0; rank < 6; ++rank) {
    std::vector<Op> mirrored = schedule.ranks[5 - rank];
    for (Op& op : mirrored) op.stage = (op.stage + 6) % 12;
    EXPECT_EQ(schedule.ranks[rank], mirrored);
  }
}

// The released one for two ranks and four microbatches each way.
TEST(DualPipeTest, PairsAreThoseOfTheRelease) {
  const PipelineProfile both = WithPairs(BothWays(UniformProfile(2, 1, 0)), 2);
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeDualPipe(2, 8, both.pairs));
  EXPECT_EQ(ToString(schedule),
            "0F0 3F0 0F1 3B0 3F1& 0B0 0F2& 3B1 3F2& 0B1 0F3& 3B2 3F3& 0B2 3B3 0I3 0W3\n"
            "2F0 1F0 2F1 1B0 1F1& 2B0 2F2& 1B1 1F2& 2B1 2F3& 1B2 1F3& 2B2 1B3 2I3 2W3\n");
  // Without a time for a pair its ops take turns.
  ASSERT_OK_AND_ASSIGN(const Schedule half,
                       MakeDualPipe(2, 8, std::vector<PairProfile>{{3, 0, 2}}));
  EXPECT_THAT(ToString(half),
              testing::StartsWith("0F0 3F0 0F1 3B0 3F1& 0B0 0F2 3B1 3F2& 0B1 0F3 3B2 "));
}

// How long a rank computes nothing.
double BubbleOf(const absl::StatusOr<Schedule>& schedule, const PipelineProfile& profile,
                RankIndex rank) {
  EXPECT_OK(ProvePipeline(*schedule, profile));
  const absl::StatusOr<OpTable> ops = OpTable::Create(*schedule, profile);
  double busy = 0;
  for (OpIndex step = ops->first(rank); step < ops->first(rank + 1); step = ops->EndOf(step)) {
    busy += ops->SecondsOfStep(step);
  }
  return RunOf(schedule, profile).seconds - busy;
}

struct PairTimes {
  double weight_gradient = 0;
  double pair = 0;
};

// Forward ops and gradients of the input take 1.
PipelineProfile WithTimes(PipelineProfile profile, const PairTimes& times) {
  for (StageProfile& stage : profile.stages) stage.weight_gradient_seconds = times.weight_gradient;
  return WithPairs(std::move(profile), times.pair);
}

// Of a rank in the middle, exactly, where gradients of the input take as long as forward ops, and
// those of the weights no longer.
TEST(DualPipeTest, PairsLeaveThePublishedBubble) {
  for (const PairTimes& times :
       {PairTimes{1, 3}, PairTimes{1, 2.5}, PairTimes{1, 2}, PairTimes{0.5, 2.25},
        PairTimes{0.5, 1.5}, PairTimes{0.25, 1.25}}) {
    for (const int32_t half : {1, 2, 3, 4, 6}) {
      for (const int32_t rounds : {1, 2, 3}) {
        SCOPED_TRACE(absl::StrCat("half of the ranks ", half, ", pairs of ", times.pair));
        const double backward = 1 + times.weight_gradient;
        const double published = (half - 1) * (times.pair + backward - 3 * times.weight_gradient);
        const int32_t ranks = 2 * half, each_way = ranks * rounds;
        const PipelineProfile both = WithTimes(BothWays(UniformProfile(ranks, 1, 0)), times);
        EXPECT_DOUBLE_EQ(BubbleOf(MakeDualPipe(ranks, 2 * each_way, both.pairs), both, half),
                         published);
        const PipelineProfile v =
            WithTimes(PlacedBy(VRank, half, UniformProfile(ranks, 1, 0)), times);
        EXPECT_DOUBLE_EQ(BubbleOf(MakeDualPipeV(half, each_way, v.pairs), v, half - 1), published);
      }
    }
  }
}

// Both hold at most a microbatch more than there are stages in a direction; forward and backward
// ops that take turns leave half of the published bubble.
TEST(DualPipeTest, HoldsAMicrobatchMoreThanStages) {
  for (const int32_t ranks : {2, 4, 6, 8}) {
    for (const int32_t m : {2 * ranks, 4 * ranks}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", m, " microbatches"));
      const PipelineProfile both = BothWays(UniformProfile(ranks, 1, 0));
      ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeDualPipe(ranks, m));
      ASSERT_OK_AND_ASSIGN(const PipelineProof proof, ProvePipeline(schedule, both));
      for (const RankMemory& memory : proof.memory) {
        EXPECT_LE(memory.bytes(), ByteCount(ranks + 1));
      }
      EXPECT_LE(RunOf(schedule, both).seconds, 3 * m + (ranks / 2 - 1) * (3 + 2 - 3) + 1e-9);
    }
  }
}

}  // namespace
}  // namespace crossmesh
