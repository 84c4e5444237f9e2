#include "planner/pipeline/search/improve.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

double SecondsOf(const Schedule& schedule, const PipelineProfile& profile, TransferModel model) {
  return RunOf(schedule, profile, model).seconds;
}

ImproveOptions OptionsOf(TransferModel model, int64_t ops_max) {
  return {.judge = JudgeByProfile(model), .ops_max = ops_max};
}

TEST(ImproveTest, OpsGoToWhereTheyCostNoTime) {
  // The gradient of the weights keeps the next microbatch waiting.
  ASSERT_OK_AND_ASSIGN(const Schedule given,
                       ParseSchedule("0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1W0 1F1 1I1 1W1\n"));
  ASSERT_OK_AND_ASSIGN(
      const ImprovedSchedule improved,
      ImproveSchedule(given, UniformProfile(2, 1, 0), OptionsOf(TransferModel::kLatency, 10'000)));
  EXPECT_EQ(improved.seconds, 7);
  EXPECT_LE(improved.ops, 10'000);
}

TEST(ImproveTest, NothingGetsWorseAndMemoryIsKept) {
  int better = 0;
  const int64_t cases = RandomCases(200);
  ForEachSeed(cases, [&](RandomSource& random) {
    PipelineProfile profile = RandomProfile(random);
    const Schedule given = RandomSchedule(random, profile, 4, BackwardForm::kSplit, true);
    const absl::StatusOr<OpTable> ops = OpTable::Create(given, profile);
    ASSERT_OK(ops);
    const std::vector<RankMemory> memory = PeakMemory(*ops);
    for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
      profile.rank_bytes_max[rank] = memory[rank].bytes();
    }
    for (const TransferModel model : {TransferModel::kLatency, TransferModel::kPair}) {
      const double before = SecondsOf(given, profile, model);
      ASSERT_OK_AND_ASSIGN(const ImprovedSchedule improved,
                           ImproveSchedule(given, profile, OptionsOf(model, 100'000)));
      EXPECT_OK(ProvePipeline(improved.schedule, profile));
      EXPECT_DOUBLE_EQ(SecondsOf(improved.schedule, profile, model), improved.seconds);
      EXPECT_LE(improved.seconds, before);
      better += improved.seconds < before;
    }
  });
  EXPECT_GT(better, cases * 3 / 4);
}

TEST(ImproveTest, NothingComesBetweenFusedOps) {
  int better = 0;
  const int64_t cases = RandomCases(100);
  ForEachSeed(cases, [&](RandomSource& random) {
    PipelineProfile profile = RandomProfile(random);
    Schedule given = RandomSchedule(random, profile, 4, BackwardForm::kFull, true);
    AddRandomPairs(random, profile);
    FuseRandomOps(random, profile, given);
    const double before = SecondsOf(given, profile, TransferModel::kLatency);
    ASSERT_OK_AND_ASSIGN(
        const ImprovedSchedule improved,
        ImproveSchedule(given, profile, OptionsOf(TransferModel::kLatency, 100'000)));
    EXPECT_OK(ProvePipeline(improved.schedule, profile));
    EXPECT_DOUBLE_EQ(SecondsOf(improved.schedule, profile, TransferModel::kLatency),
                     improved.seconds);
    EXPECT_LE(improved.seconds, before);
    better += improved.seconds < before;
  });
  EXPECT_GT(better, cases * 3 / 10);
}

TEST(ImproveTest, StopsWhenItMayRunNoMoreOps) {
  ASSERT_OK_AND_ASSIGN(const Schedule given, MakeOneForwardOneBackward(4, 8));
  const PipelineProfile profile = UniformProfile(4, 1, 0.5);
  ASSERT_OK_AND_ASSIGN(const ImprovedSchedule improved,
                       ImproveSchedule(given, profile, OptionsOf(TransferModel::kLatency, 1)));
  EXPECT_EQ(improved.schedule, given);
  EXPECT_EQ(improved.ops, 64);
}

}  // namespace
}  // namespace crossmesh
