#include "worker/pipeline/worker_program.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "worker/memory/memory_budget.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

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

TEST(WorkerProgramTest, FusedOpsAreNotComputedYet) {
  EXPECT_THAT(Decode("3F0 3F1& 3B0 3B1"),
              IsRefused("program: rank 4: expected no fused ops, which workers do not compute yet, "
                        "found 3F1&: dual_pipe and dual_pipe_v have them where the pipeline has "
                        "times of pairs"));
}

}  // namespace
}  // namespace crossmesh
