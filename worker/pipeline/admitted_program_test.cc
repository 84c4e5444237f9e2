#include "worker/pipeline/admitted_program.h"

#include "common/base/check.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"
#include "common/wire/worker_part_codec.h"
#include "worker/memory/memory_budget.h"

#include <cstdint>
#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

struct ProgramOptions {
  int64_t message_bytes = 4;
  int32_t buffers = 1;
  int32_t microbatches = 2;
};

// Of the worker of b.0, which gets a message from a.0 for each forward op of stage 1.
std::string ProgramOf(const ProgramOptions& options) {
  const Plan plan = ChainPlan(
      TensorOf(absl::StrCat("[", options.message_bytes / 4, "]: x=1 on a.0 [-] -> x=1 on b.0 [-]")),
      {"a.0 > b.0"}, {.chunk_bytes = Plan::kLeafBytes});
  const auto parts = CutParts(plan, {{{"a", 0}}, {{"b", 0}}});
  CHECK_OK(parts);
  v1::PipelineProgram program;
  program.add_stages()->set_stage(1);
  v1::PipelineProgram::Microbatches& microbatches = *program.add_microbatches();
  microbatches.set_count(options.microbatches);
  microbatches.set_samples(1);
  v1::PipelineProgram::Rank& rank = *program.add_ranks();
  for (int32_t m = 0; m < options.microbatches; ++m) {
    absl::StrAppend(rank.mutable_actions(), m == 0 ? "" : " ", "1F", m);
  }
  v1::PipelineProgram::Transfer& transfer = *program.add_transfers();
  transfer.set_to(1);
  transfer.set_samples(1);
  transfer.set_buffers(options.buffers);
  *transfer.mutable_part() = ToProto(parts->back());
  transfer.add_tensors("x");
  return program.SerializeAsString();
}

class AdmittedProgramTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const WorkerProgram>> Admit(const std::string& bytes) {
    return AdmitProgram("program of run r", bytes, memory_);
  }
  // How much a program takes while it is there.
  int64_t TakenBy(const ProgramOptions& options) {
    const auto program = Admit(ProgramOf(options));
    EXPECT_OK(program.status());
    return memory_.used_bytes();
  }

  MemoryBudget memory_{ByteCount(64 * kMiB)};
};

TEST_F(AdmittedProgramTest, APartTakesMemoryForEachOfItsChunksAndBuffers) {
  constexpr int64_t kBytes = 1024 * kMiB;
  constexpr int64_t kLeaves = kBytes / Plan::kLeafBytes;
  const int64_t small = TakenBy({});
  EXPECT_GT(small, 0);
  const int64_t large = TakenBy({.message_bytes = kBytes});
  EXPECT_GT(large, small + kLeaves * 16);  // where each chunk begins, and the hash of each leaf
  EXPECT_GT(TakenBy({.message_bytes = kBytes, .buffers = 9}), large + 8 * kLeaves * 8);
}

TEST_F(AdmittedProgramTest, OpsAndMessagesTakeMemory) {
  const int64_t few = TakenBy({.microbatches = 2});
  EXPECT_GT(TakenBy({.microbatches = 1002}), few + 1000 * 100);
}

TEST_F(AdmittedProgramTest, WhatItTookIsGivenBackWithIt) {
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const WorkerProgram> program, Admit(ProgramOf({})));
  EXPECT_EQ(program->transfers.size(), 1);
  EXPECT_GT(memory_.used_bytes(), 0);
  program.reset();
  EXPECT_EQ(memory_.used_bytes(), 0);
}

TEST_F(AdmittedProgramTest, WhatIsRefusedTakesNothing) {
  EXPECT_THAT(Admit("\xff"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("program of run r: 1 bytes")));
  EXPECT_THAT(Admit(ProgramOf({.buffers = 0})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 0")));
  EXPECT_EQ(memory_.used_bytes(), 0);
}

// A part whose chunks and leaves would take 2 GiB is no larger than others on the wire.
TEST_F(AdmittedProgramTest, APartForWhichThereIsNoMemoryIsRefusedWithTheFigures) {
  ASSERT_OK_AND_ASSIGN(const MemoryBudget::Share others, memory_.Take("others", ByteCount(kMiB)));
  EXPECT_THAT(
      Admit(ProgramOf({.message_bytes = int64_t{1} << 42})),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("program of run r: transfer 0>1: expected at most "),
                     HasSubstr(absl::StrCat(memory_.bytes_max(), " bytes of host memory")))));
  EXPECT_EQ(memory_.used_bytes(), kMiB);
}

TEST_F(AdmittedProgramTest, BytesForWhichThereIsNoMemoryAreNotDecoded) {
  ASSERT_OK_AND_ASSIGN(const MemoryBudget::Share others,
                       memory_.Take("others", ByteCount(memory_.bytes_max() - 1)));
  EXPECT_THAT(Admit("\xff"), StatusIs(absl::StatusCode::kResourceExhausted,
                                      HasSubstr("program of run r: expected at most")));
}

}  // namespace
}  // namespace crossmesh
