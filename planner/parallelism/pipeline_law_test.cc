#include "planner/parallelism/pipeline_law.h"

#include "common/testing/status_matchers.h"
#include "planner/parallelism/schedule_run.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr GridSchedule kSchedules[] = {GridSchedule::kGpipe, GridSchedule::kOneForwardOneBackward,
                                       GridSchedule::kEager, GridSchedule::kInterleaved,
                                       GridSchedule::kZbH1};

std::string TextOf(const EqualPipeline& shape) {
  return absl::StrCat(GridScheduleName(shape.schedule), " ranks ", shape.ranks, " microbatches ",
                      shape.microbatches, " chunks ", shape.chunks);
}

// Every shape of small sizes that the rules of grids let through.
std::vector<EqualPipeline> SmallPipelines() {
  std::vector<EqualPipeline> shapes;
  const auto add = [&shapes](GridSchedule schedule, int64_t ranks, int64_t microbatches) {
    const bool interleaved = schedule == GridSchedule::kInterleaved;
    if (interleaved && microbatches % ranks != 0) return;
    for (const int64_t chunks :
         interleaved ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{1}) {
      shapes.push_back({.schedule = schedule,
                        .ranks = ranks,
                        .microbatches = microbatches,
                        .chunks = chunks,
                        .forward_seconds = 4,
                        .input_gradient_seconds = 5,
                        .weight_gradient_seconds = 3});
    }
  };
  for (const GridSchedule schedule : kSchedules) {
    for (int64_t ranks = 2; ranks <= 6; ++ranks) {
      for (int64_t microbatches = ranks; microbatches <= 18; ++microbatches) {
        add(schedule, ranks, microbatches);
      }
    }
  }
  return shapes;
}

TEST(PipelineLawTest, ClosedFormsAreWhatTheSchedulesTakeWithoutTransfers) {
  for (const EqualPipeline& shape : SmallPipelines()) {
    ASSERT_OK_AND_ASSIGN(const ScheduleRun run,
                         RunSchedule(GridScheduleName(shape.schedule), shape));
    EXPECT_NEAR(PipelineSeconds(shape), run.seconds, 1e-9 * run.seconds) << TextOf(shape);
  }
}

TEST(PipelineLawTest, ClosedFormsAreWhatTheSchedulesHold) {
  for (const EqualPipeline& shape : SmallPipelines()) {
    ASSERT_OK_AND_ASSIGN(const ScheduleRun run,
                         RunSchedule(GridScheduleName(shape.schedule), shape));
    const double held = InFlight(shape.schedule, shape.ranks, shape.microbatches, shape.chunks);
    EXPECT_NEAR(held, run.in_flight, 1e-9 * held) << TextOf(shape);
  }
}

TEST(PipelineLawTest, TransfersCostAtLeastWhatTheSchedulesTakeAndLittleMore) {
  for (EqualPipeline shape : SmallPipelines()) {
    // A tenth of a microbatch.
    shape.transfer_seconds = 1.2;
    ASSERT_OK_AND_ASSIGN(const ScheduleRun run,
                         RunSchedule(GridScheduleName(shape.schedule), shape));
    EXPECT_GE(PipelineSeconds(shape), 0.99 * run.seconds) << TextOf(shape);
    EXPECT_LE(PipelineSeconds(shape), 1.04 * run.seconds) << TextOf(shape);
  }
}

TEST(PipelineLawTest, SchedulesWithTwoStagesToARankRunToo) {
  const EqualPipeline shape{.ranks = 4,
                            .microbatches = 16,
                            .forward_seconds = 1,
                            .input_gradient_seconds = 1,
                            .weight_gradient_seconds = 1};
  ASSERT_OK_AND_ASSIGN(const ScheduleRun whole, RunSchedule("1f1b", shape));
  ASSERT_OK_AND_ASSIGN(const ScheduleRun half, RunSchedule("v_half", shape));
  EXPECT_LT(half.in_flight, 0.8 * whole.in_flight);
  EXPECT_LT(half.seconds, whole.seconds);
  EXPECT_THAT(RunSchedule("1f2b", shape),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("found \"1f2b\"")));
}

}  // namespace
}  // namespace crossmesh
