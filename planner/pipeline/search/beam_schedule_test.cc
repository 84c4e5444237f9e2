#include "planner/pipeline/search/beam_schedule.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/search/testing/exact_schedule.h"
#include "planner/pipeline/search/testing/shared_pipeline.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Whatever the pipeline and its memory, as long as it has room for one microbatch of all stages of
// a rank, what comes out can be proven.
TEST(BeamScheduleTest, WhatIsMadeCanRun) {
  ForEachSeed(300, [&](RandomSource& random) {
    PipelineProfile profile = RandomProfile(random, {.stages_max = 5});
    const std::vector<RankMemory> fixed = FixedMemory(profile);
    std::vector<ByteCount> least(profile.ranks());
    for (const StageProfile& stage : profile.stages) {
      least[stage.rank] += stage.activation_bytes();
    }
    for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
      if (random.OneIn(4)) continue;
      profile.rank_bytes_max[rank] =
          fixed[rank].bytes() + least[rank] + ByteCount(random.Between(0, 6));
    }
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    const auto width = static_cast<int32_t>(random.Between(1, 4));
    ASSERT_OK_AND_ASSIGN(
        const Schedule schedule,
        MakeBeamSchedule(profile, static_cast<int32_t>(random.Between(1, 4)), form, width));
    EXPECT_OK(ProvePipeline(schedule, profile));
  });
}

TEST(BeamScheduleTest, AWideBeamIsNearTheLeastTime) {
  double sum = 0;
  int solved = 0;
  ForEachSeed(40, [&](RandomSource& random) {
    const auto [profile, microbatches] = RandomSharedPipeline(random);
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    const auto exact = FindExactSchedule(profile, microbatches, form, 30'000);
    if (!exact.ok()) return;  // too many orders
    ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                         MakeBeamSchedule(profile, microbatches, form, 64));
    const double ratio = RunOf(schedule, profile).seconds / exact->seconds;
    EXPECT_LE(ratio, 1.1);
    sum += ratio;
    ++solved;
  });
  EXPECT_GE(solved, 10);
  EXPECT_LE(sum / solved, 1.01);
}

TEST(BeamScheduleTest, RefusesWhatItCannotDo) {
  PipelineProfile profile = PlacedBy(LoopedRank, 2, UniformProfile(4, 1, 0));
  EXPECT_THAT(MakeBeamSchedule(profile, 0, BackwardForm::kFull, 4), IsRefused("microbatches"));
  EXPECT_THAT(MakeBeamSchedule(profile, 4, BackwardForm::kFull, 0), IsRefused("a width"));
  // A microbatch of either stage of rank 0, but not of both.
  profile.rank_bytes_max[0] = ByteCount(1);
  EXPECT_THAT(MakeBeamSchedule(profile, 4, BackwardForm::kFull, 4),
              StatusIs(absl::StatusCode::kResourceExhausted));
  profile.sequence_parts = 2;
  EXPECT_THAT(MakeBeamSchedule(profile, 4, BackwardForm::kFull, 4), IsRefused("whole sequences"));
}

}  // namespace
}  // namespace crossmesh
