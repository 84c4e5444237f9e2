#include "planner/pipeline/schedules/dual_pipe.h"

#include "common/testing/status_matchers.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>

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
