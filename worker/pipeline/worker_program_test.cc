#include "worker/pipeline/worker_program.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "worker/memory/memory_budget.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

// Of one rank with one stage, which passes nothing on.
v1::PipelineProgram ProgramOf(const std::string& actions) {
  v1::PipelineProgram program;
  v1::PipelineProgram::Rank& rank = *program.add_ranks();
  rank.set_rank(4);
  rank.set_actions(actions);
  v1::PipelineProgram::Stage& stage = *program.add_stages();
  stage.set_stage(3);
  stage.set_rank(4);
  program.add_microbatches()->set_count(2);
  program.mutable_microbatches(0)->set_samples(1);
  return program;
}

absl::StatusOr<WorkerProgram> Decode(const std::string& actions) {
  MemoryBudget memory(ByteCount(1 << 20));
  return FromProto(ProgramOf(actions), "program", memory);
}

TEST(WorkerProgramTest, OpsAreInTheOrderOfTheirText) {
  ASSERT_OK_AND_ASSIGN(const WorkerProgram program, Decode("3F0 3F1 3B0 3B1"));
  ASSERT_EQ(program.ranks.size(), 1u);
  ASSERT_EQ(program.ranks[0].ops.size(), 4u);
  EXPECT_EQ(program.ranks[0].ops[2].op, (Op{OpKind::kBackward, 3, 0}));
}

TEST(WorkerProgramTest, FusedOpsAreOneAction) {
  ASSERT_OK_AND_ASSIGN(const WorkerProgram program, Decode("3F0 3F1& 3B0 3B1"));
  const WorkerProgram::Rank& rank = program.ranks[0];
  EXPECT_EQ(rank.ops.size(), 4u);
  using Action = WorkerProgram::Action;
  EXPECT_THAT(rank.actions, ElementsAre(Action{.op = 0}, Action{.op = 1}, Action{.op = 3}));
  EXPECT_EQ(rank.NameOfStep(0), "3F0");
  EXPECT_EQ(rank.NameOfStep(1), "3F1& 3B0");
}

TEST(WorkerProgramTest, AForwardOpIsFusedWithTheBackwardOpRightAfterIt) {
  const auto expected = [](const std::string& op, const std::string& after) {
    return IsRefused("program: rank 4, op " + op +
                     ": expected a forward op, fused with the backward op right after it, found " +
                     after + " after it");
  };
  EXPECT_THAT(Decode("3F0 3B0 3F1&"), expected("3F1&", "nothing"));
  EXPECT_THAT(Decode("3F0& 3F1 3B0 3B1"), expected("3F0&", "3F1"));
  EXPECT_THAT(Decode("3F0 3F1 3B0& 3B1"), expected("3B0&", "3B1"));
  EXPECT_THAT(Decode("3F0 3I0 3F1& 3W0 3B1"), expected("3F1&", "3W0"));
  EXPECT_THAT(Decode("3F0 3F1& 3>4F0 3B0 3B1"), expected("3F1&", "3>4F0"));
  EXPECT_THAT(Decode("3F0 3F1& 3B0 3F1"), IsRefused("op 3F1 is there twice"));
}

// Forward ops of 2 s and backward ops of 3 s for the first microbatch, pairs of 4 s.
class PairTimesTest : public testing::Test {
 protected:
  PairTimesTest() {
    v1::PipelineProgram::Stage& stage = *program_.mutable_stages(0);
    stage.set_forward_seconds(2);
    stage.set_input_gradient_seconds(1);
    stage.set_weight_gradient_seconds(2);
    AddPair(3, 3);
  }

  v1::PipelinePair& AddPair(StageIndex forward, StageIndex backward) {
    v1::PipelinePair& pair = *program_.add_pairs();
    pair.set_forward_stage(forward);
    pair.set_backward_stage(backward);
    pair.set_seconds(4);
    return pair;
  }
  absl::StatusOr<WorkerProgram> Decode() {
    MemoryBudget memory(ByteCount(1 << 20));
    return FromProto(program_, "program", memory);
  }

  v1::PipelineProgram program_ = ProgramOf("3F0 3F1& 3B0 3B1");
};

TEST_F(PairTimesTest, APairTakesItsOwnTime) {
  ASSERT_OK_AND_ASSIGN(const WorkerProgram program, Decode());
  EXPECT_EQ(program.ranks[0].ops[0].seconds, 2);
  EXPECT_EQ(program.ranks[0].ops[1].seconds, 4);
  EXPECT_EQ(program.ranks[0].ops[3].seconds, 3);
}

TEST_F(PairTimesTest, OpsOfTwoSizesOverlapAsFarAsTheSmallerGoes) {
  program_.mutable_microbatches(0)->set_count(1);
  program_.add_microbatches()->set_count(1);
  program_.mutable_microbatches(1)->set_samples(3);
  ASSERT_OK_AND_ASSIGN(const WorkerProgram program, Decode());
  EXPECT_EQ(program.ranks[0].ops[1].seconds, 3 * 2 + 3 - 1);
}

TEST_F(PairTimesTest, WithoutATimeAPairTakesThatOfBothOps) {
  program_.clear_pairs();
  ASSERT_OK_AND_ASSIGN(const WorkerProgram in_turn, Decode());
  EXPECT_EQ(in_turn.ranks[0].ops[1].seconds, 5);
  AddPair(3, 3);
  program_.mutable_ranks(0)->set_actions("3F0 3F1& 3I0 3W0 3B1");
  ASSERT_OK_AND_ASSIGN(const WorkerProgram split, Decode());
  EXPECT_EQ(split.ranks[0].ops[1].seconds, 3);
}

TEST_F(PairTimesTest, PairsAreOfTwoStagesOfARank) {
  AddPair(3, 3);
  EXPECT_THAT(Decode(), IsRefused("program: pair of stages 3 and 3: is there twice"));
  program_.mutable_pairs(1)->set_backward_stage(2);
  EXPECT_THAT(Decode(), IsRefused("pair of stages 3 and 2: expected stages of one rank"));
  program_.add_stages()->set_stage(2);
  EXPECT_THAT(Decode(), IsRefused("pair of stages 3 and 2: expected stages of one rank"));
  program_.mutable_stages(1)->set_rank(4);
  EXPECT_OK(Decode());
  program_.mutable_pairs(1)->set_seconds(-1);
  EXPECT_THAT(Decode(), IsRefused("3 and 2: expected a time of 0 or more, found -1"));
}

}  // namespace
}  // namespace crossmesh
