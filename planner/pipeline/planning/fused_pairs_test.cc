// Pipelines whose pairs of ops have times of their own: what is planned has them fused.

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/formats/schedule_file.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"
#include "planner/pipeline/testing/random_pipeline.h"
#include "planner/pipeline/transfer_model.h"

#include <algorithm>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(FusedPairsTest, OnlyPairsWithATimeAreFused) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer in_turn, PlanOf(DownAndUp(8), ChoiceOf("dual_pipe_v")));
  ASSERT_OK_AND_ASSIGN(const PlannedPointer fused,
                       PlanOf(DownAndUp(8, 0.022), ChoiceOf("dual_pipe_v")));
  EXPECT_THAT(in_turn->Summary().rank_ops(0), Not(HasSubstr("&")));
  EXPECT_THAT(fused->Summary().rank_ops(0), HasSubstr(" 0F3& 3B1 3F2& 0B0 "));
  EXPECT_EQ(fused->proof.ops, in_turn->proof.ops);
  EXPECT_LT(fused->run.seconds, in_turn->run.seconds);
  EXPECT_LT(fused->bound.seconds(), in_turn->bound.seconds());
  EXPECT_NE(fused->id, in_turn->id);
  // A rank is busy once with two fused ops.
  for (RankIndex rank = 0; rank < 2; ++rank) {
    int pairs = 0;
    for (const Op& op : fused->schedule.ranks[rank]) pairs += op.is_fused;
    EXPECT_GT(pairs, 4);
    EXPECT_NEAR(fused->Summary().ranks(rank).busy_seconds(), 8 * 2 * 0.03 - pairs * 0.008, 1e-9);
  }
}

// One of two samples first: all times are given for it.
TEST(FusedPairsTest, TimesAreThoseOfTheFirstSize) {
  v1::PipelineSpec spec = DownAndUp(1, 0.022);
  spec.mutable_microbatches(0)->set_samples(2);
  for (v1::PipelineEdge& edge : *spec.mutable_edges()) {
    edge.mutable_tensors(0)->mutable_tensor()->set_shape(0, 2);
  }
  spec.add_microbatches()->set_count(7);
  spec.mutable_microbatches(1)->set_samples(4);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, ChoiceOf("dual_pipe_v")));
  ASSERT_EQ(planned->profile.pairs.size(), 4u);
  EXPECT_DOUBLE_EQ(planned->profile.pairs[0].seconds, 0.044);
  const OpTable& ops = *planned->ops;
  const auto seconds_of = [&](OpIndex index) {
    const TimeSpan& span = planned->run.ops[index];
    return span.end - span.begin;
  };
  EXPECT_NEAR(seconds_of(ops.StepOf(ops.Backward(3, 1))), 0.044, 1e-9);
  // A backward op of half the size, which overlaps half as long.
  ASSERT_TRUE(ops.op(ops.StepOf(ops.Backward(0, 0))).is_fused);
  EXPECT_NEAR(seconds_of(ops.Backward(0, 0)), 0.02 + 0.02 - 0.008, 1e-9);
}

TEST(FusedPairsTest, AutoTakesThemIntoAccount) {
  v1::PipelineChoice choice = ChoiceOf("auto");
  choice.set_delay_weight_gradients(true);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(DownAndUp(8, 0.02), choice));
  EXPECT_THAT(planned->schedule_name, HasSubstr("dual_pipe_v"));
  const v1::PipelinePlan summary = planned->Summary();
  for (const v1::PipelineCandidate& candidate : summary.candidates()) {
    EXPECT_GE(candidate.gap(), -1e-9);
    EXPECT_GE(candidate.bubble_ratio(), -1e-9);
  }
}

TEST(FusedPairsTest, ScheduleFilesKeepThem) {
  const v1::PipelineSpec spec = DownAndUp(8, 0.022);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, ChoiceOf("dual_pipe_v")));
  v1::PipelineChoice choice = ChoiceOf("");
  choice.set_schedule_file(*ToScheduleFile(*planned->ops));
  ASSERT_OK_AND_ASSIGN(const PlannedPointer again, PlanOf(spec, choice));
  EXPECT_EQ(again->schedule, planned->schedule);
  EXPECT_EQ(again->id, planned->id);
}

// Whatever ops are fused, and however little memory messages have: nothing is faster than the
// bound, and nothing waits for ever that is proven.
TEST(FusedPairsTest, RandomPairsAreProven) {
  int planned_ones = 0, short_of_memory = 0;
  ForEachSeed(60, [&](RandomSource& random) {
    v1::PipelineSpec spec = DownAndUp(6);
    for (v1::PipelineStage& stage : *spec.mutable_stages()) {
      stage.set_forward_seconds(static_cast<double>(random.Between(1, 8)) * 1e-4);
      stage.set_weight_gradient_seconds(static_cast<double>(random.Between(0, 8)) * 1e-4);
    }
    for (int forward = 0; forward < 4; ++forward) {
      for (const int backward : {forward, 3 - forward}) {
        const v1::PipelineStage& other = spec.stages(backward);
        v1::PipelinePair& pair = *spec.add_pairs();
        pair.set_forward_stage(forward);
        pair.set_backward_stage(backward);
        pair.set_seconds(
            std::max(spec.stages(forward).forward_seconds(),
                     other.input_gradient_seconds() + other.weight_gradient_seconds()));
      }
    }
    const std::string model(TransferModelName(kAllTransferModels[random.Below(6)]));
    const PlannedPointer free = *PlanOf(spec, ChoiceOf("dual_pipe_v", model));
    Schedule schedule =
        RandomSchedule(random, free->profile, 6, BackwardForm::kFull, /*in_order=*/true);
    FuseRandomOps(random, free->profile, schedule);
    if (random.OneIn(2)) {
      for (v1::PipelineRank& rank : *spec.mutable_ranks()) {
        rank.set_device_bytes_max(free->proof.memory[0].bytes().value());
      }
    }
    v1::PipelineChoice choice = ChoiceOf("", model);
    const absl::StatusOr<OpTable> ops = OpTable::Create(schedule, free->profile);
    choice.set_schedule_file(*ToScheduleFile(*ops));
    const absl::StatusOr<PlannedPointer> planned = PlanOf(spec, choice);
    if (absl::IsResourceExhausted(planned.status())) {
      ++short_of_memory;
      return;
    }
    ASSERT_OK(planned);
    ++planned_ones;
    EXPECT_GE((*planned)->run.seconds, (*planned)->bound.seconds() * (1 - 1e-9));
  });
  EXPECT_GT(planned_ones, 30);
  EXPECT_GT(short_of_memory, 3);
}

}  // namespace
}  // namespace crossmesh
