#include "planner/pipeline/op_table.h"

#include "common/base/check.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/testing/pipeline_vectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

absl::Status Refusal(absl::string_view text) {
  absl::StatusOr<Schedule> schedule = ParseSchedule(text);
  if (!schedule.ok()) return schedule.status();
  schedule->stages = 2;
  schedule->microbatches = 2;
  return OpTable::Create(*schedule, UniformProfile(2, 1, 0)).status();
}

TEST(OpTableTest, KnowsWhatAnOpWaitsFor) {
  PipelineProfile profile = UniformProfile(3, 1, 0);
  profile.edges.push_back({.from = 0, .to = 2});  // transfers 4 and 5
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule("0F0 0B0\n1F0 1I0 1W0\n2F0 2B0\n"));
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  EXPECT_EQ(ops.size(), 7);
  EXPECT_EQ(ops.op(ops.first(1)), (Op{OpKind::kForward, 1, 0}));
  EXPECT_THAT(ops.TransfersInto(ops.op(ops.Forward(2, 0))), ElementsAre(2, 4));
  EXPECT_THAT(ops.TransfersInto(ops.op(ops.Backward(0, 0))), ElementsAre(1, 5));
  EXPECT_THAT(ops.TransfersOutOf(ops.op(ops.Backward(2, 0))), ElementsAre(3, 5));
  EXPECT_THAT(ops.TransfersInto({OpKind::kWeightGradient, 1, 0}), IsEmpty());
  EXPECT_EQ(ops.ProducerOf(5, 0), ops.Backward(2, 0));
  EXPECT_EQ(ops.ConsumerOf(5, 0), ops.Backward(0, 0));
  EXPECT_EQ(ops.LocalInput({OpKind::kWeightGradient, 1, 0}), ops.Backward(1, 0));
  EXPECT_EQ(ops.LocalInput({OpKind::kForward, 1, 0}), OpTable::kNone);
}

TEST(OpTableTest, EveryOpIsThereOnce) {
  const char* const whole = "0F0 0F1 0B0 0B1\n";
  EXPECT_OK(Refusal(absl::StrCat(whole, "1F0 1B0 1F1 1I1 1W1")));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1B0 1F1")),
              IsRefused("stage 1, microbatch 1: expected a backward op, found none"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1B0 1B1")),
              IsRefused("stage 1, microbatch 1: expected a forward op, found none"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1B0 1F1 1I1")),
              IsRefused("expected a gradient of the weights, found none"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1B0 1F1 1B1 1W1")),
              IsRefused("expected one gradient of the weights, found two"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1B0 1F1 1B1 1F0")),
              IsRefused("rank 1, op 1F0: expected it once, found 1F0 before it"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1B0 1F1 1B1 1I1")),
              IsRefused("rank 1, op 1I1: expected it once, found 1B1 before it"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1B0 1F1 1B1 0W1")),
              IsRefused("rank 1, op 0W1: expected the stages of that rank, found one of rank 0"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1B0 1F1 1B1 2F0")), IsRefused("op 2F0"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1B0 1F1 1B1 1F2")), IsRefused("op 1F2"));
  EXPECT_THAT(Refusal(whole), IsRefused("expected 2 ranks, found 1"));
}

TEST(OpTableTest, FusedOpsAreAStep) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  profile.pairs = {{.forward = 1, .backward = 1, .seconds = 2.5}};
  ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                       ParseSchedule("0F0 0F1 0B0 0B1\n1F0 1F1& 1B0 1B1\n"));
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  EXPECT_EQ(ops.size(), 8);
  const OpIndex pair = ops.Forward(1, 1);
  EXPECT_EQ(ops.EndOf(pair - 1), pair);
  EXPECT_EQ(ops.EndOf(pair), pair + 2);
  EXPECT_EQ(ops.StepOf(pair), pair);
  EXPECT_EQ(ops.StepOf(ops.Backward(1, 0)), pair);
  EXPECT_EQ(ops.StepOf(0), 0);
  EXPECT_EQ(ops.NameOfStep(pair), "1F1& 1B0");
  EXPECT_EQ(ops.NameOfStep(pair + 2), "1B1");
  EXPECT_EQ(ops.SecondsOfStep(pair), 2.5);
  EXPECT_EQ(ops.SecondsOfStep(pair + 2), 2);
  const auto all_but_one = [&](OpIndex index) { return index != ops.Forward(0, 1); };
  EXPECT_EQ(ops.FindWaitedByStep(pair, all_but_one), ops.Forward(0, 1));
}

TEST(OpTableTest, OnlyForwardOpsAreFusedWithTheBackwardOpAfterThem) {
  const char* const whole = "0F0 0F1 0B0 0B1\n";
  EXPECT_OK(Refusal(absl::StrCat(whole, "1F0 1F1& 1I0 1W0 1B1")));
  EXPECT_THAT(
      Refusal(absl::StrCat(whole, "1F0& 1F1 1B0 1B1")),
      IsRefused(
          "rank 1, op 1F0&: expected a forward op, fused with the backward op right after it, "
          "found 1F1 after it"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1I0 1F1& 1W0 1B1")),
              IsRefused("found 1W0 after it"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1F1 1B0& 1B1")), IsRefused("op 1B0&"));
  EXPECT_THAT(
      Refusal("0F0 0F1 0B0 0B1&\n1F0 1B0 1F1 1B1"),
      IsRefused("op 0B1&: expected a forward op, fused with the backward op right after it, found "
                "nothing after it"));
  EXPECT_THAT(Refusal(absl::StrCat(whole, "1F0 1B0 1B1 1F1&")), IsRefused("found nothing"));
}

TEST(OpTableTest, KnowsWhereOpsStandAfterWhatTheyNeedOfTheirRank) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  const auto keeps_order = [&profile](absl::string_view text) {
    const absl::StatusOr<Schedule> schedule = ParseSchedule(text);
    CHECK_OK(schedule);
    const absl::StatusOr<OpTable> ops = OpTable::Create(*schedule, profile);
    CHECK_OK(ops);
    return ops->keeps_local_order();
  };
  EXPECT_TRUE(keeps_order("0F0 0F1 0B0 0B1\n1F0 1I0 1W0 1F1 1B1\n"));
  EXPECT_TRUE(keeps_order("0F0 0F1 0B0 0B1\n1F1 1F0 1B0 1B1\n")) << "the other rank's order";
  EXPECT_FALSE(keeps_order("0F0 0F1 0B0 0B1\n1F0 1B0 1B1 1F1\n")) << "backward first";
  EXPECT_FALSE(keeps_order("0F0 0F1 0B0 0B1\n1F0 1W0 1I0 1F1 1B1\n")) << "weights first";
  EXPECT_FALSE(keeps_order("0F0 0F1 0B0 0B1\n1F0 1F1& 1B0 1B1\n")) << "fused";
  // Both stages on one rank.
  profile.stages[1].rank = 0;
  profile.rank_bytes_max.resize(1);
  EXPECT_TRUE(keeps_order("0F0 1F0 1B0 0B0\n"));
  EXPECT_FALSE(keeps_order("1F0 0F0 1B0 0B0\n")) << "the stage after it first";
  EXPECT_FALSE(keeps_order("0F0 1F0 0B0 1B0\n")) << "the stage before it first";
}

TEST(OpTableTest, SizesAreLimited) {
  Schedule schedule{.stages = 2, .microbatches = int32_t{1} << 30, .ranks = {{}, {}}};
  EXPECT_THAT(OpTable::Create(schedule, UniformProfile(2, 1, 0)),
              StatusIs(absl::StatusCode::kResourceExhausted));
  schedule.microbatches = 1'000'000;  // a table for so many is not made in vain
  EXPECT_THAT(OpTable::Create(schedule, UniformProfile(2, 1, 0)),
              IsRefused("each of 1000000 microbatches, found 0 ops"));
  schedule.microbatches = 0;
  EXPECT_THAT(OpTable::Create(schedule, UniformProfile(2, 1, 0)), IsRefused("microbatches"));
  schedule.stages = 3;
  EXPECT_THAT(OpTable::Create(schedule, UniformProfile(2, 1, 0)), IsRefused("expected 2 stages"));
}

}  // namespace
}  // namespace crossmesh
