// What is made of a run: its report, its timeline and times, and the picture of them.

#include "client/cli/pipeline_run_report.h"

#include "client/cli/measured_timeline.h"
#include "client/cli/measured_times.h"
#include "client/cli/pipeline_picture.h"
#include "client/cli/run_picture.h"
#include "client/cli/testing/example_run.h"
#include "client/cli/testing/program_run.h"
#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/planning/testing/example_pipeline.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"

#include <functional>
#include <string>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PipelineRunReportTest, HasWhatWasPredictedBesideWhatWasMeasured) {
  ExpectGolden("pipeline_run.txt", PipelineRunText(ExampleRunOf("1f1b", 1.05)));
}

TEST(PipelineRunReportTest, OfARunThatHasMeasuredNothingYetSaysSo) {
  v1::PipelineRun run = ExampleRunOf("1f1b", 1);
  run.set_state(v1::PIPELINE_RUN_STATE_RUNNING);
  run.clear_done();
  run.clear_measurement();
  run.clear_median_seconds();
  run.clear_failed_iterations();
  EXPECT_THAT(PipelineRunText(run),
              AllOf(HasSubstr("state         RUNNING"), HasSubstr("0 of 3 tried"),
                    HasSubstr("         -          -"), Not(HasSubstr("failed:"))));
}

TEST(PipelineRunReportTest, ShowsTheLastOfManyErrors) {
  v1::PipelineRun run = ExampleRunOf("1f1b", 1);
  run.set_state(v1::PIPELINE_RUN_STATE_FAILED);
  run.set_error("worker node-b is lost");
  run.clear_done();
  run.set_failed_iterations(2000);
  for (int64_t i = 1000; i < 2000; ++i) {
    v1::PipelineIteration& iteration = *run.add_done();
    iteration.set_index(i);
    iteration.set_error(absl::StrCat("error ", i));
    iteration.set_error_code(14);
  }
  EXPECT_THAT(
      PipelineRunText(run),
      AllOf(HasSubstr("2000 of 3 tried, 0 complete, 2000 failed"),
            HasSubstr("error         worker node-b is lost"),
            HasSubstr("The last 5 iterations that failed"), Not(HasSubstr("error 1994")),
            HasSubstr("  iteration 1995, UNAVAILABLE\n    error 1995\n"), HasSubstr("error 1999")));
}

TEST(MeasuredTimelineTest, HasTheTimesOfEveryOpAndMessage) {
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanOf(ExamplePipeline(), ChoiceOf("eager_1f1b")));
  ASSERT_OK_AND_ASSIGN(const PipelineTimeline measured,
                       MeasuredTimeline(ExampleRun(*planned, 2).measurement(), *planned->ops));
  ASSERT_EQ(measured.ops.size(), planned->run.ops.size());
  for (size_t i = 0; i < measured.ops.size(); ++i) {
    EXPECT_DOUBLE_EQ(measured.ops[i].begin, 2 * planned->run.ops[i].begin);
    EXPECT_DOUBLE_EQ(measured.ops[i].end, 2 * planned->run.ops[i].end);
  }
  ASSERT_EQ(measured.messages.size(), planned->run.messages.size());
  for (size_t i = 0; i < measured.messages.size(); ++i) {
    EXPECT_DOUBLE_EQ(measured.messages[i].end, 2 * planned->run.messages[i].end);
  }
  EXPECT_DOUBLE_EQ(measured.seconds, 2 * planned->run.seconds);
  EXPECT_DOUBLE_EQ(measured.span_seconds, 2 * planned->run.span_seconds);
}

TEST(MeasuredTimelineTest, WhatDoesNotFitTheScheduleIsNamed) {
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanOf(ExamplePipeline(), ChoiceOf("1f1b")));
  struct Bad {
    std::function<void(v1::PipelineMeasurement&)> spoil;
    const char* message;
  };
  const Bad cases[] = {
      {[](auto& measured) { measured.mutable_ranks(0)->mutable_ops()->set_name(0, "0F99"); },
       "0F99"},
      {[](auto& measured) { measured.mutable_ranks()->RemoveLast(); }, "expected op 3F0"},
      {[](auto& measured) { measured.mutable_transfers(0)->set_edge(4); }, "edge below 4, found 4"},
      {[](auto& measured) {
         measured.mutable_transfers(0)->mutable_messages()->mutable_end()->RemoveLast();
       },
       "16 ops, found 16 and 15"}};
  for (const Bad& bad : cases) {
    v1::PipelineMeasurement measurement = ExampleRun(*planned, 1).measurement();
    bad.spoil(measurement);
    EXPECT_THAT(MeasuredTimeline(measurement, *planned->ops),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.message)));
  }
}

TEST(MeasuredTimesTest, AnEdgeThatWasNotMeasuredIsNamed) {
  v1::PipelineSpec spec = ExamplePipeline();
  v1::PipelineRun run = ExampleRunOf("1f1b", 1);
  EXPECT_OK(SetMeasuredTimes(run, spec));
  run.mutable_measurement()->mutable_transfers()->RemoveLast();
  EXPECT_THAT(SetMeasuredTimes(run, spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("edges[3]"), HasSubstr("backward"))));
}

TEST(MeasuredTimesTest, AnOpThatWasNotMeasuredIsNamed) {
  v1::PipelineSpec spec = ExamplePipeline();
  v1::PipelineRun run = ExampleRunOf("1f1b", 1);
  run.set_rehearsal(false);
  run.mutable_measurement()->mutable_ranks()->RemoveLast();
  EXPECT_THAT(SetMeasuredTimes(run, spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("stages[3]"), HasSubstr("forward ops, found none"))));
  run.mutable_measurement()->mutable_ranks(0)->mutable_ops()->set_name(0, "0F99");
  EXPECT_THAT(SetMeasuredTimes(run, spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("below 16, found op 0F99")));
}

// Here half as large, and so in half the time: the profile is of the first ones.
TEST(MeasuredTimesTest, OpsAreMeasuredWithMicrobatchesOfTheFirstSize) {
  v1::PipelineSpec spec = ExamplePipeline();
  spec.mutable_microbatches(0)->set_count(1);
  v1::PipelineMicrobatches& smaller = *spec.add_microbatches();
  smaller.set_count(5);
  smaller.set_samples(spec.microbatches(0).samples() / 2);
  v1::PipelineChoice choice = ChoiceOf("1f1b");
  choice.set_delay_weight_gradients(true);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, choice));
  v1::PipelineRun run = ExampleRun(*planned, 2);
  run.set_rehearsal(false);
  v1::PipelineSpec measured = spec;
  ASSERT_OK(SetMeasuredTimes(run, measured));
  for (int i = 0; i < spec.stages_size(); ++i) {
    const v1::PipelineStage &stage = measured.stages(i), &before = spec.stages(i);
    EXPECT_NEAR(stage.forward_seconds(), 2 * before.forward_seconds(), 1e-9);
    EXPECT_NEAR(stage.weight_gradient_seconds(), 2 * before.weight_gradient_seconds(), 1e-9);
  }
}

// A run of two ranks in which pairs and ops took so many times as long as planned.
v1::PipelineRun RunWithPairs(const v1::PipelineSpec& spec, double slower) {
  const auto planned = PlanOf(spec, ChoiceOf("dual_pipe_v"));
  CHECK_OK(planned);
  v1::PipelineRun run = ExampleRun(**planned, slower);
  run.set_rehearsal(false);
  return run;
}

TEST(MeasuredTimesTest, APairHasATimeOfItsOwn) {
  v1::PipelineSpec spec = DownAndUp(8, 0.024);
  const v1::PipelineRun run = RunWithPairs(spec, 2);
  spec.mutable_pairs()->RemoveLast();  // it may have had none, such as in a schedule's file
  ASSERT_OK(SetMeasuredTimes(run, spec));
  ASSERT_EQ(spec.pairs_size(), 4);
  for (const v1::PipelinePair& pair : spec.pairs()) {
    EXPECT_EQ(pair.forward_stage() + pair.backward_stage(), 3);
    EXPECT_NEAR(pair.seconds(), 0.048, 1e-9);
  }
  for (const v1::PipelineStage& stage : spec.stages()) {
    EXPECT_NEAR(stage.forward_seconds(), 0.02, 1e-9);
    EXPECT_NEAR(stage.input_gradient_seconds(), 0.02, 1e-9);
    EXPECT_NEAR(stage.weight_gradient_seconds(), 0.02, 1e-9);
  }
}

TEST(MeasuredTimesTest, OpsThatWereInPairsAloneKeepTheirTimes) {
  v1::PipelineSpec spec = DownAndUp(8, 0.024);
  v1::PipelineRun run = RunWithPairs(spec, 0.5);
  for (auto& rank : *run.mutable_measurement()->mutable_ranks()) {
    const v1::PipelineTimes all = rank.ops();
    rank.clear_ops();
    for (int i = 0; i < all.name_size(); ++i) {
      if (!absl::StrContains(all.name(i), "&")) continue;
      rank.mutable_ops()->add_name(all.name(i));
      rank.mutable_ops()->add_begin(all.begin(i));
      rank.mutable_ops()->add_end(all.end(i));
    }
  }
  ASSERT_OK(SetMeasuredTimes(run, spec));
  for (const v1::PipelineStage& stage : spec.stages()) EXPECT_EQ(stage.forward_seconds(), 0.01);
  // Measured: 12 ms, which is less than a backward op, and so would be refused.
  for (const v1::PipelinePair& pair : spec.pairs()) EXPECT_EQ(pair.seconds(), 0.02);
  EXPECT_OK(PlanOf(spec, ChoiceOf("dual_pipe_v")).status());
}

TEST(MeasuredTimelineTest, TheOpsOfAPairHaveItsTimes) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned,
                       PlanOf(DownAndUp(8, 0.024), ChoiceOf("dual_pipe_v")));
  ASSERT_OK_AND_ASSIGN(const PipelineTimeline measured,
                       MeasuredTimeline(ExampleRun(*planned, 2).measurement(), *planned->ops));
  for (size_t i = 0; i < measured.ops.size(); ++i) {
    EXPECT_DOUBLE_EQ(measured.ops[i].begin, 2 * planned->run.ops[i].begin);
    EXPECT_DOUBLE_EQ(measured.ops[i].end, 2 * planned->run.ops[i].end);
  }
  const OpTable& ops = *planned->ops;
  for (MessageIndex i = 0; i < ops.messages(); ++i) {
    if (!ops.Passes(i / ops.schedule().microbatches)) continue;  // what stays is not measured
    EXPECT_DOUBLE_EQ(measured.messages[i].end, 2 * planned->run.messages[i].end);
  }
}

TEST(PipelineRunReportTest, ARankIsBusyOnceWithAPair) {
  const std::string text = PipelineRunText(RunWithPairs(DownAndUp(8, 0.024), 2));
  EXPECT_THAT(text, ContainsRegex("\n +0  0, 3 .*\\+100\\.0 %\n +1  1, 2 .*\\+100\\.0 %\n"));
}

TEST(PipelineRunReportTest, SaysWhoseStateIsLost) {
  v1::PipelineRun run;
  run.set_state(v1::PIPELINE_RUN_STATE_WAITING);
  EXPECT_THAT(PipelineRunText(run), Not(HasSubstr("state lost")));
  run.add_lost_ranks(1);
  run.add_lost_ranks(3);
  EXPECT_THAT(PipelineRunText(run), HasSubstr("state lost    of rank 1, 3: all ranks have to say"));
}

// A third of the pair's 24 ms is the forward op's: it takes 10 ms of 30 alone.
TEST(RunPictureTest, FusedOpsShareTheirBlock) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned,
                       PlanOf(DownAndUp(8, 0.024), ChoiceOf("dual_pipe_v")));
  const OpTable& ops = *planned->ops;
  const OpIndex pair = ops.StepOf(ops.Backward(3, 1));
  ASSERT_EQ(ops.NameOfStep(pair), "0F3& 3B1");
  const nlohmann::json picture =
      nlohmann::json::parse(PipelinePicture({{.title = "", .ops = &ops, .run = &planned->run}}));
  const nlohmann::json& drawn = picture["runs"][0]["planned"]["ops"];
  const double begin = planned->run.ops[pair].begin;
  EXPECT_EQ(drawn[pair][0], "0F3");
  EXPECT_EQ(drawn[pair][1], begin);
  EXPECT_NEAR(drawn[pair][2], begin + 0.008, 1e-9);
  EXPECT_EQ(drawn[pair + 1][0], "3B1");
  EXPECT_EQ(drawn[pair + 1][1], drawn[pair][2]);
  EXPECT_EQ(drawn[pair + 1][2], planned->run.ops[pair].end);
}

TEST(RunPictureTest, IsOfThePlanThatWasRunOnly) {
  v1::PipelineRun run = ExampleRunOf("1f1b", 1.05);
  ASSERT_OK_AND_ASSIGN(const std::string picture,
                       MeasuredPicture(ExamplePipeline(), ChoiceOf("1f1b"), run));
  EXPECT_THAT(picture, HasSubstr("\"measured\":"));
  EXPECT_THAT(MeasuredPicture(ExamplePipeline(), ChoiceOf("gpipe"), run),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("have changed since")));
  run.mutable_measurement()->clear_ranks();
  EXPECT_THAT(MeasuredPicture(ExamplePipeline(), ChoiceOf("1f1b"), run),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("too many")));
  run.clear_measurement();
  EXPECT_THAT(MeasuredPicture(ExamplePipeline(), ChoiceOf("1f1b"), run),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("complete iteration")));
}

TEST(PipelineRunReportTest, TransfersOfALayerProgramAreToldByName) {
  v1::PipelineRun run;
  run.set_id("pr-1");
  v1::LayerRunSummary::Transfer& transfer = *run.mutable_plan()->mutable_layers()->add_transfers();
  transfer.set_name("qkv.sum");
  transfer.set_messages(4);
  transfer.set_seconds(0.010);
  transfer.set_exposed_seconds(0.030);
  transfer.set_hidden_seconds(0.001);
  v1::LayerRunSummary::Transfer& other = *run.mutable_plan()->mutable_layers()->add_transfers();
  other.set_name("qkv.gather");
  v1::LayerRunSummary::Layer& layer = *run.mutable_plan()->mutable_layers()->add_layers();
  EXPECT_THAT(PipelineRunText(run), Not(HasSubstr("LAYER")));  // of ops that say none
  layer.set_name("layer3");
  layer.set_op_seconds(0.5);
  layer.set_exposed_seconds(0.030);
  layer.set_hidden_seconds(0.001);
  v1::PipelineMeasurement::Transfer& measured = *run.mutable_measurement()->add_transfers();
  measured.set_name("qkv.sum");
  measured.set_transfer_seconds(0.011);
  const std::string text = PipelineRunText(run);
  EXPECT_THAT(text, ContainsRegex("qkv.sum +4 +10.00 ms +11.00 ms +.10.0 % +30.00 ms +1.00 ms"));
  EXPECT_THAT(text, ContainsRegex("qkv.gather +0 +0 s +- +- "));
  EXPECT_THAT(text, ContainsRegex("layer3 +500.00 ms +30.00 ms +1.00 ms"));
  EXPECT_THAT(text, Not(HasSubstr("EDGE")));
}

TEST(PipelineRunReportTest, OpsOfSeveralWorkersThatOverlapCountOnce) {
  v1::PipelineRun run;
  run.set_id("pr-1");
  run.mutable_plan()->add_ranks()->set_busy_seconds(0.004);
  v1::PipelineTimes& ops = *run.mutable_measurement()->add_ranks()->mutable_ops();
  for (const auto& [begin, end] : {std::pair(0.0, 0.003), {0.001, 0.002}, {0.002, 0.005}}) {
    ops.add_begin(begin);
    ops.add_end(end);
  }
  EXPECT_THAT(PipelineRunText(run), ContainsRegex("0 +- +4.00 ms +5.00 ms"));
}

}  // namespace
}  // namespace crossmesh
