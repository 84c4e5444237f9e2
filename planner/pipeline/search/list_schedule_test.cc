#include "planner/pipeline/search/list_schedule.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

// Windows of eager-1F1B, and nothing to wait for: the same order.
TEST(ListScheduleTest, DoesWhatEagerDoes) {
  ASSERT_OK_AND_ASSIGN(const Schedule list,
                       MakeListSchedule(UniformProfile(4, 1, 0.5), 8, {.windows = {7, 5, 3, 1}}));
  EXPECT_EQ(list, *MakeEagerOneForwardOneBackward(4, 8));
}

TEST(ListScheduleTest, FillsWaitsWithGradientsOfTheWeights) {
  ASSERT_OK_AND_ASSIGN(
      const Schedule list,
      MakeListSchedule(UniformProfile(2, 1, 0), 2,
                       {.form = BackwardForm::kSplit, .windows = {2, 2}, .overlap = 0}));
  EXPECT_EQ(ToString(list), "0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1F1 1I1 1W0 1W1\n");
}

// Whatever the pipeline, its memory and the manner, what comes out can be proven.
TEST(ListScheduleTest, WhatIsMadeCanRun) {
  ForEachSeed(500, [&](RandomSource& random) {
    PipelineProfile profile = RandomProfile(random);
    std::vector<ByteCount> least(profile.ranks());
    const std::vector<RankMemory> fixed = FixedMemory(profile);
    for (const StageProfile& stage : profile.stages) {
      least[stage.rank] += stage.activation_bytes();
    }
    for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
      if (random.OneIn(3)) continue;
      profile.rank_bytes_max[rank] =
          fixed[rank].bytes() + least[rank] + ByteCount(random.Between(0, 12));
    }
    ListOptions options{.form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull,
                        .overlap = static_cast<double>(random.Between(0, 4)) / 4,
                        .target_seconds = static_cast<double>(random.Between(0, 60)),
                        .rush = static_cast<double>(random.Between(0, 4)) / 2,
                        .by_stage = random.OneIn(2)};
    for (size_t s = 0; s < profile.stages.size(); ++s) {
      options.windows.push_back(static_cast<int32_t>(random.Between(1, 6)));
    }
    ASSERT_OK_AND_ASSIGN(const Schedule list, MakeListSchedule(profile, 5, options));
    EXPECT_OK(ProvePipeline(list, profile));
  });
}

// Room for three microbatches of a stage: with memory for both stages set aside there is one at a
// time, by stage a second one comes while the first is elsewhere.
TEST(ListScheduleTest, MemoryThatIsSetAsideByStageIsUsedSooner) {
  PipelineProfile profile = UniformProfile(4, 1, 2);
  profile.rank_bytes_max = {ByteCount(3), ByteCount(3)};
  for (StageIndex s = 0; s < 4; ++s) profile.stages[s].rank = s % 2;
  double seconds[2] = {};
  for (const bool by_stage : {false, true}) {
    ASSERT_OK_AND_ASSIGN(
        const Schedule list,
        MakeListSchedule(profile, 4, {.windows = {4, 4, 4, 4}, .by_stage = by_stage}));
    EXPECT_OK(ProvePipeline(list, profile));
    seconds[by_stage] = RunOf(list, profile).seconds;
  }
  EXPECT_LT(seconds[true], seconds[false]);
}

TEST(ListScheduleTest, RefusesWhatItCannotDo) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  EXPECT_THAT(MakeListSchedule(profile, 0, {.windows = {1, 1}}), IsRefused("microbatches"));
  EXPECT_THAT(MakeListSchedule(profile, 4, {.windows = {1}}), IsRefused("2 windows"));
  EXPECT_THAT(MakeListSchedule(profile, 4, {.windows = {1, 0}}), IsRefused("at least 1"));
  profile.rank_bytes_max[1] = ByteCount(0);
  EXPECT_THAT(MakeListSchedule(profile, 4, {.windows = {1, 1}}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("rank 1")));
}

}  // namespace
}  // namespace crossmesh
