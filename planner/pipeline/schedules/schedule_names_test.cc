#include "planner/pipeline/schedules/schedule_names.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/schedules/dual_pipe.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/testing/both_ways.h"
#include "planner/pipeline/testing/pipeline_vectors.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

PipelineProfile Placed(RankIndex (*rank_of)(StageIndex, int32_t), int32_t ranks) {
  return PlacedBy(rank_of, ranks, UniformProfile(2 * ranks, 1, 0.25));
}

PipelineProfile InParts(PipelineProfile profile, int32_t parts) {
  profile.sequence_parts = parts;
  return profile;
}

// On one placement or another each name gives a schedule that can be proven, in both forms.
TEST(ScheduleNamesTest, EveryNameMakesAScheduleSomewhere) {
  const std::vector<PipelineProfile> profiles = {
      UniformProfile(4, 1, 0.25), Placed(LoopedRank, 2), Placed(VRank, 2),
      BothWays(UniformProfile(2, 1, 0.25)), InParts(UniformProfile(4, 1, 0.25), 4)};
  for (const absl::string_view name : ScheduleNames()) {
    SCOPED_TRACE(name);
    int made = 0;
    for (const PipelineProfile& profile : profiles) {
      for (const BackwardForm form : {BackwardForm::kFull, BackwardForm::kSplit}) {
        const absl::StatusOr<Schedule> schedule =
            MakeNamedSchedule(name, {.profile = profile, .microbatches = 8, .form = form});
        EXPECT_EQ(schedule.ok(), CheckPlacement(name, profile).ok());
        if (!schedule.ok()) continue;
        EXPECT_OK(ProvePipeline(*schedule, profile));
        ++made;
      }
    }
    EXPECT_GE(made, 2);
  }
}

TEST(ScheduleNamesTest, SaysWhatIsWrong) {
  const PipelineProfile chain = UniformProfile(4, 1, 0);
  EXPECT_THAT(MakeNamedSchedule("2f2b", {.profile = chain, .microbatches = 8}),
              IsRefused("schedule: expected one of gpipe, 1f1b, eager_1f1b, "));
  EXPECT_THAT(MakeNamedSchedule("zb_v", {.profile = chain, .microbatches = 8}),
              IsRefused("zb_v: expected two stages to a rank, down and up again"));
  EXPECT_THAT(
      MakeNamedSchedule("interleaved_1f1b", {.profile = Placed(VRank, 2), .microbatches = 8}),
      IsRefused("found stage 2 on rank 1"));
  EXPECT_THAT(MakeNamedSchedule("dual_pipe", {.profile = Placed(VRank, 2), .microbatches = 8}),
              IsRefused("found an edge from stage 1 to 2"));
  EXPECT_THAT(MakeNamedSchedule("dual_pipe_v", {.profile = Placed(VRank, 2), .microbatches = 3}),
              IsRefused("dual_pipe_v: expected at least 4 microbatches"));
  EXPECT_THAT(MakeNamedSchedule("1f1b", {.profile = InParts(chain, 2), .microbatches = 8}),
              IsRefused("1f1b: expected whole sequences, found them in 2 parts"));
  EXPECT_THAT(MakeNamedSchedule("sequence_split", {.profile = chain, .microbatches = 8}),
              IsRefused("sequence_split: expected sequences in 2 parts or more, found them whole"));
  EXPECT_THAT(
      MakeNamedSchedule("sequence_split", {.profile = InParts(chain, 3), .microbatches = 8}),
      IsRefused("expected the 3 parts of each sequence as microbatches, found 8"));
  const std::vector<int32_t> windows = {2, 1};
  EXPECT_THAT(
      MakeNamedSchedule("window_order", {.profile = chain, .microbatches = 8, .windows = windows}),
      IsRefused("windows: expected one for each of the 4 stages, found 2"));
}

// The law's windows: transfers of a quarter there and back need one more for each stage.
TEST(ScheduleNamesTest, WindowsAreFoundWhereNoneAreGiven) {
  const PipelineProfile chain = UniformProfile(3, 1, 0.25);
  const std::vector<int32_t> windows = {5, 3, 1};
  EXPECT_EQ(*MakeNamedSchedule("window_order", {.profile = chain, .microbatches = 8}),
            *MakeNamedSchedule("window_order",
                               {.profile = chain, .microbatches = 8, .windows = windows}));
}

TEST(ScheduleNamesTest, AsManyMicrobatchesFitAsMemoryHasRoomFor) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  profile.rank_bytes_max[0] = ByteCount(3);
  EXPECT_EQ(WindowsThatFit(profile, 8), (std::vector<int32_t>{3, 8}));
}

}  // namespace
}  // namespace crossmesh
