#include "worker/pipeline/program_progress.h"

#include "worker/pipeline/testing/receiver_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Work = ProgramProgress::Work;
using Kind = Work::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace crossmesh
