#include "worker/pipeline/program_progress.h"

#include "worker/pipeline/testing/receiver_program.h"

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Work = ProgramProgress::Work;
using Kind = Work::Kind;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Work Open(int32_t transfer, int32_t index) {
  return {.kind = Kind::kOpen, .message = {transfer, index}};
}
Work Fill(int32_t transfer, int32_t index) {
  return {.kind = Kind::kFill, .message = {transfer, index}};
}
Work RunOp(int32_t op) { return {.kind = Kind::kRun, .op = op}; }

TEST(ProgramProgress, MemoryIsGivenAgainWhenTheOpIsDoneAndNothingMoves) {
  const WorkerProgram program = ReceiverProgram();
  ProgramProgress progress(program);
  EXPECT_THAT(progress.Begin(), ElementsAre(Open(0, 0), Open(0, 1)));
  EXPECT_EQ(progress.PositionOf(0), "rank 4: 1F0 waits for microbatch 0 of 0>1");
  EXPECT_THAT(progress.OnArrived({0, 0}), ElementsAre(RunOp(0)));
  EXPECT_EQ(progress.PositionOf(0), "rank 4: computes 1F0");
  EXPECT_THAT(progress.OnOpDone(0), IsEmpty());  // it still goes on to others
  EXPECT_THAT(progress.OnLeft({0, 0}), ElementsAre(Open(0, 2)));
  EXPECT_THAT(progress.OnArrived({0, 1}), ElementsAre(RunOp(1)));
  EXPECT_THAT(progress.OnLeft({0, 1}), IsEmpty());
  EXPECT_THAT(progress.OnOpDone(0), IsEmpty());
  EXPECT_THAT(progress.OnArrived({0, 2}), ElementsAre(RunOp(2)));
  EXPECT_THAT(progress.OnOpDone(0), IsEmpty());
  EXPECT_FALSE(progress.complete());
  EXPECT_EQ(progress.PositionOf(0), "rank 4: done");
  EXPECT_THAT(progress.OnLeft({0, 2}), IsEmpty());
  EXPECT_TRUE(progress.complete());
  EXPECT_THAT(progress.Begin(), ElementsAre(Open(0, 0), Open(0, 1)));
  EXPECT_FALSE(progress.complete());
}

TEST(ProgramProgress, MemoryOfWhatWasNotUsedIsNotGivenAgain) {
  const WorkerProgram program = ReceiverProgram();
  ProgramProgress progress(program);
  progress.Begin();
  progress.OnArrived({0, 0});
  EXPECT_THAT(progress.OnLeft({0, 0}), IsEmpty());  // its op still computes
  EXPECT_THAT(progress.OnOpDone(0), ElementsAre(Open(0, 2)));
}

TEST(ProgramProgress, AnOpWaitsForMemoryForItsOutput) {
  WorkerProgram program{.samples = {1, 1}};
  program.transfers.push_back(
      {.from = 0, .to = 1, .samples = 1, .buffers = 1, .sends = true, .microbatches = {0, 1}});
  program.ranks.push_back({.rank = 0});
  for (int32_t m = 0; m < 2; ++m) {
    program.ranks[0].ops.push_back(
        {.op = {.stage = 0, .microbatch = m}, .samples = 1, .outputs = {{0, m}}});
    program.ranks[0].actions.push_back({.op = m});
  }
  ProgramProgress progress(program);
  EXPECT_THAT(progress.Begin(), ElementsAre(Open(0, 0), RunOp(0)));
  EXPECT_THAT(progress.OnOpDone(0), ElementsAre(Fill(0, 0)));
  EXPECT_EQ(progress.PositionOf(0), "rank 0: 0F1 waits for memory for microbatch 1 of 0>1");
  EXPECT_THAT(progress.OnLeft({0, 0}), ElementsAre(Open(0, 1), RunOp(1)));
}

TEST(ProgramProgress, APairWaitsForTheInputsOfBothAndFillsTheOutputsOfBoth) {
  // The second of three stages: what comes in forward and backward, and what it gives.
  WorkerProgram program{.samples = {1, 1}};
  program.transfers = {
      {.from = 0, .to = 1, .samples = 1, .receives = true, .microbatches = {1}},
      {.backward = true, .from = 1, .to = 2, .samples = 1, .receives = true, .microbatches = {0}},
      {.from = 1, .to = 2, .samples = 1, .sends = true, .microbatches = {1}},
      {.backward = true, .from = 0, .to = 1, .samples = 1, .sends = true, .microbatches = {0}}};
  const Op forward = {.stage = 1, .microbatch = 1, .is_fused = true};
  const Op backward = {.kind = OpKind::kBackward, .stage = 1};
  program.ranks.push_back(
      {.ops = {{.op = forward, .samples = 1, .inputs = {{0, 0}}, .outputs = {{2, 0}}},
               {.op = backward, .samples = 1, .inputs = {{1, 0}}, .outputs = {{3, 0}}}},
       .actions = {{.op = 0}}});
  ProgramProgress progress(program);
  EXPECT_THAT(progress.Begin(), ElementsAre(Open(0, 0), Open(1, 0), Open(2, 0), Open(3, 0)));
  EXPECT_THAT(progress.OnArrived({0, 0}), IsEmpty());
  EXPECT_EQ(progress.PositionOf(0), "rank 0: 1F1& 1B0 waits for microbatch 0 of 2>1");
  EXPECT_THAT(progress.OnArrived({1, 0}), ElementsAre(RunOp(0)));
  EXPECT_EQ(progress.PositionOf(0), "rank 0: computes 1F1& 1B0");
  EXPECT_THAT(progress.OnOpDone(0), ElementsAre(Fill(2, 0), Fill(3, 0)));
  EXPECT_EQ(progress.PositionOf(0),
            "rank 0: done, moving microbatch 1 of 1>2, microbatch 0 of 1>0");
  for (int32_t transfer = 0; transfer < 4; ++transfer) {
    EXPECT_FALSE(progress.complete());
    EXPECT_THAT(progress.OnLeft({transfer, 0}), IsEmpty());
  }
  EXPECT_TRUE(progress.complete());
}

TEST(ProgramProgress, APairWaitsForMemoryForTheOutputOfEither) {
  for (const int32_t late : {0, 1}) {
    WorkerProgram program{.samples = {1, 1}};
    program.transfers.push_back(
        {.from = 1, .to = 2, .samples = 1, .sends = true, .microbatches = {0, 1}});
    program.transfers.push_back({.backward = true,
                                 .from = 0,
                                 .to = 1,
                                 .samples = 1,
                                 .sends = true,
                                 .microbatches = {0, 1}});
    program.ranks.push_back({});
    for (int32_t m = 0; m < 2; ++m) {
      const Op forward = {.stage = 1, .microbatch = m, .is_fused = true};
      const Op backward = {.kind = OpKind::kBackward, .stage = 1, .microbatch = m};
      program.ranks[0].ops.push_back({.op = forward, .samples = 1, .outputs = {{0, m}}});
      program.ranks[0].ops.push_back({.op = backward, .samples = 1, .outputs = {{1, m}}});
      program.ranks[0].actions.push_back({.op = 2 * m});
    }
    ProgramProgress progress(program);
    EXPECT_THAT(progress.Begin(), ElementsAre(Open(0, 0), Open(1, 0), RunOp(0)));
    EXPECT_THAT(progress.OnOpDone(0), ElementsAre(Fill(0, 0), Fill(1, 0)));
    EXPECT_THAT(progress.OnLeft({1 - late, 0}), ElementsAre(Open(1 - late, 1)));
    EXPECT_THAT(progress.PositionOf(0), HasSubstr("waits for memory for microbatch 1 of "));
    EXPECT_THAT(progress.OnLeft({late, 0}), ElementsAre(Open(late, 1), RunOp(2)));
  }
}

// Five ops, each of which gives a message inside the rank that the last one needs.
WorkerProgram CollectivesProgram() {
  constexpr int32_t kGiven = 5;
  WorkerProgram program;
  program.ranks.push_back({});
  WorkerProgram::Rank& rank = program.ranks[0];
  for (int32_t op = 0; op <= kGiven; ++op) {
    rank.ops.push_back({.name = absl::StrCat("layer", op, ".forward")});
    rank.actions.push_back({.op = op});
    if (op == kGiven) break;
    program.transfers.push_back(
        {.name = absl::StrCat("sum", op), .sends = true, .receives = true, .ops = {op}});
    rank.ops[op].outputs = {{op, 0}};
  }
  for (int32_t op = 0; op < kGiven; ++op) rank.ops[kGiven].inputs.push_back({op, 0});
  return program;
}

TEST(ProgramProgress, ARankThatComputesSaysWhatItMoves) {
  const WorkerProgram program = CollectivesProgram();
  ProgramProgress progress(program);
  progress.Begin();
  EXPECT_EQ(progress.PositionOf(0), "rank 0: computes layer0.forward");
  progress.OnOpDone(0);
  EXPECT_EQ(progress.PositionOf(0),
            "rank 0: computes layer1.forward, moving sum0 after layer0.forward");
  // It has arrived here, and others still get it from here.
  progress.OnArrived({0, 0});
  EXPECT_THAT(progress.PositionOf(0), HasSubstr("moving sum0 after layer0.forward"));
  progress.OnOpDone(0);
  progress.OnLeft({0, 0});
  EXPECT_EQ(progress.PositionOf(0),
            "rank 0: computes layer2.forward, moving sum1 after layer1.forward");
}

TEST(ProgramProgress, OfManyThatMoveTheFirstAreTold) {
  const WorkerProgram program = CollectivesProgram();
  ProgramProgress progress(program);
  progress.Begin();
  for (int32_t op = 0; op < 4; ++op) progress.OnOpDone(0);
  EXPECT_THAT(progress.PositionOf(0),
              AllOf(HasSubstr("moving sum0 after layer0.forward, "),
                    HasSubstr("sum3 after layer3.forward"), Not(HasSubstr("more"))));
  progress.OnOpDone(0);
  // What it waits for says enough.
  EXPECT_EQ(progress.PositionOf(0), "rank 0: layer5.forward waits for sum0 after layer0.forward");
  for (int32_t op = 0; op < 5; ++op) progress.OnArrived({op, 0});
  EXPECT_EQ(progress.PositionOf(0),
            "rank 0: computes layer5.forward, moving sum0 after layer0.forward, sum1 after "
            "layer1.forward, sum2 after layer2.forward, sum3 after layer3.forward and 1 more");
}

}  // namespace
}  // namespace crossmesh
