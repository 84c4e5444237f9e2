#include "worker/pipeline/layer_worker_program.h"

#include "common/base/check.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/worker_part.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "common/wire/worker_part_codec.h"
#include "worker/memory/memory_budget.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

// Of rank 3 with four ops and a transfer inside it, at the one worker that has both its devices.
class LayerWorkerProgramTest : public testing::Test {
 protected:
  LayerWorkerProgramTest() {
    v1::LayerProgram::Rank& rank = *program_.add_ranks();
    rank.set_rank(3);
    for (const char* name : {"a", "b", "c", "d"}) rank.add_ops()->set_name(name);
    const Plan plan = ChainPlan(TensorOf("[8]: x=1 on a.0 [-] -> x=1 on a.1 [-]"), {"a.0 > a.1"},
                                {.chunk_bytes = Plan::kLeafBytes});
    const auto parts = CutParts(plan, {{{"a", 0}, {"a", 1}}});
    CHECK_OK(parts);
    v1::LayerProgram::Transfer& transfer = *program_.add_transfers();
    transfer.set_name("sum");
    transfer.set_from(3);
    transfer.set_to(3);
    transfer.set_buffers(2);
    transfer.set_plan(1);
    *transfer.mutable_part() = ToProto(parts->front());
    transfer.add_tensors("x");
    AddMessage(0, 1);
    AddMessage(2, 3);
  }

  void AddMessage(int32_t producer, int32_t consumer) {
    v1::LayerProgram::Message& message = *transfer().add_messages();
    message.set_producer(producer);
    message.set_consumer(consumer);
  }
  v1::LayerProgram::Transfer& transfer() { return *program_.mutable_transfers(0); }
  v1::LayerProgram::Op& op(int index) { return *program_.mutable_ranks(0)->mutable_ops(index); }
  absl::StatusOr<WorkerProgram> Decode() {
    MemoryBudget memory(ByteCount(1 << 20));
    return FromProto(program_, "program", memory);
  }

  v1::LayerProgram program_;
};

TEST_F(LayerWorkerProgramTest, OpsGiveAndNeedTheirMessages) {
  ASSERT_OK_AND_ASSIGN(const WorkerProgram program, Decode());
  ASSERT_EQ(program.ranks.size(), 1u);
  const WorkerProgram::Rank& rank = program.ranks[0];
  EXPECT_EQ(rank.rank, 3);
  EXPECT_EQ(rank.NameOfStep(1), "b");
  EXPECT_THAT(rank.ops[0].outputs, ElementsAre(TransferMessage{0, 0}));
  EXPECT_THAT(rank.ops[3].inputs, ElementsAre(TransferMessage{0, 1}));
  EXPECT_EQ(program.NameOf({0, 1}), "sum after c");
}

// Of a transfer that only comes in, what is known here is what needs it.
TEST_F(LayerWorkerProgramTest, WhatOnlyArrivesIsNamedByTheOpThatNeedsIt) {
  const Plan plan = ChainPlan(TensorOf("[8]: x=1 on b.0 [-] -> x=1 on a.1 [-]"), {"b.0 > a.1"},
                              {.chunk_bytes = Plan::kLeafBytes});
  const auto parts = CutParts(plan, {{{"a", 1}}, {{"b", 0}}});
  ASSERT_OK(parts.status());
  *transfer().mutable_part() = ToProto(parts->front());
  transfer().set_from(4);
  ASSERT_OK_AND_ASSIGN(const WorkerProgram program, Decode());
  EXPECT_TRUE(program.transfers[0].receives);
  EXPECT_FALSE(program.transfers[0].sends);
  EXPECT_THAT(program.transfers[0].ops, ElementsAre(1, 3));
  EXPECT_EQ(program.NameOf({0, 1}), "sum before d");
}

TEST_F(LayerWorkerProgramTest, NamesAreTheirOwn) {
  op(1).set_name("a");
  EXPECT_THAT(Decode(), IsRefused("ops of rank 3: expected names of their own of 1 to 256 bytes, "
                                  "found \"a\""));
  op(1).set_name("");
  EXPECT_THAT(Decode(), IsRefused("found \"\""));
  op(1).set_name("b");
  *program_.add_transfers() = transfer();
  EXPECT_THAT(Decode(), IsRefused("transfers: expected names of their own"));
  program_.mutable_transfers(1)->set_name("other");
  EXPECT_THAT(Decode(), IsRefused("transfer other: expected a plan of its own, found 1"));
}

TEST_F(LayerWorkerProgramTest, OpsTakeNoTimeBelowZero) {
  for (const double seconds : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    op(2).set_seconds(seconds);
    EXPECT_THAT(Decode(), IsRefused("rank 3, op c: expected a time of 0 s or more"));
  }
}

TEST_F(LayerWorkerProgramTest, MessagesAreOfOpsThatThereAre) {
  AddMessage(3, 4);
  EXPECT_THAT(Decode(), IsRefused("transfer sum: message 2: expected ops of ranks 3 and 3, found 3 "
                                  "and 4"));
  transfer().mutable_messages(2)->set_producer(-1);
  EXPECT_THAT(Decode(), IsRefused("found -1 and 4"));
  transfer().clear_messages();
  EXPECT_THAT(Decode(), IsRefused("transfer sum: expected messages, found none"));
}

TEST_F(LayerWorkerProgramTest, MessagesAreInTheOrderOfTheOpsAndCanBeGiven) {
  transfer().mutable_messages(1)->set_producer(0);
  EXPECT_THAT(Decode(), IsRefused("message 1: expected messages in the order of the ops, found ops "
                                  "0 and 3 after 0 and 1"));
  transfer().mutable_messages(1)->set_producer(3);
  EXPECT_THAT(Decode(), IsRefused("message 1: expected the op that needs it after the one that "
                                  "gives it, found 3 and 3"));
  transfer().mutable_messages(1)->set_producer(1);
  EXPECT_OK(Decode());
  transfer().set_buffers(1);
  EXPECT_THAT(Decode(), IsRefused("message 1: expected memory before op 1, found that op 1 frees "
                                  "it"));
}

TEST_F(LayerWorkerProgramTest, EndsAreAtRanksOfThisWorker) {
  transfer().set_to(4);
  EXPECT_THAT(Decode(), IsRefused("transfer sum: expected ops of rank 4, which needs it, found "
                                  "none"));
  transfer().set_from(-1);
  EXPECT_THAT(Decode(), IsRefused("expected ranks from 0 on, found -1 and 4"));
}

TEST_F(LayerWorkerProgramTest, PartsAreAdmitted) {
  transfer().set_buffers(0);
  EXPECT_THAT(Decode(), IsRefused("transfer sum: expected 1 to 65536 buffers, found 0"));
  transfer().set_buffers(1);
  transfer().add_tensors("y");
  EXPECT_THAT(Decode(), IsRefused("transfer sum: expected 1 tensors, found 2"));
  transfer().clear_part();
  EXPECT_THAT(Decode(), IsRefused("transfer sum: "));
}

}  // namespace
}  // namespace crossmesh
