#include "planner/layers/layer_timeline.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/container/inlined_vector.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Ports = std::vector<absl::InlinedVector<PortIndex, 2>>;

// Ops "0", "1", ... of these times. Nothing is said of meshes and tensors.
LayerProgram ProgramOf(const std::vector<LayerProgram::Op>& ops) {
  LayerProgram program;
  for (const LayerProgram::Op& op : ops) {
    if (op.rank >= std::ssize(program.ranks)) program.ranks.resize(op.rank + 1);
    program.ops.push_back(op);
  }
  return program;
}

void AddTransfer(std::vector<LayerProgram::Message> messages, int32_t buffers,
                 LayerProgram& program) {
  program.transfers.push_back({.buffers = buffers, .messages = std::move(messages)});
}

TransferCosts CostsOf(std::vector<double> seconds, Ports ports = {}) {
  ports.resize(seconds.size());
  return {.seconds = std::move(seconds), .ports = TransferPorts(std::move(ports))};
}

void ExpectSpan(const TimeSpan& found, double begin, double end) {
  EXPECT_NEAR(found.begin, begin, 1e-9);
  EXPECT_NEAR(found.end, end, 1e-9);
}

TEST(LayerTimelineTest, WhatIsComputedMeanwhileHidesATransfer) {
  LayerProgram program = ProgramOf({{.seconds = 1}, {.seconds = 1.5}, {.seconds = 1}});
  AddTransfer({{0, 2}}, 1, program);
  const LayerTimeline run = SimulateLayers(program, CostsOf({2}));
  ExpectSpan(run.ops[1], 1, 2.5);
  ExpectSpan(run.messages[0][0], 1, 3);
  ExpectSpan(run.ops[2], 3, 4);
  EXPECT_DOUBLE_EQ(run.seconds, 4);
  EXPECT_DOUBLE_EQ(run.exposures[0].exposed, 0.5);
  EXPECT_DOUBLE_EQ(run.exposures[0].hidden, 1.5);
  EXPECT_DOUBLE_EQ(run.waits[2].for_transfers, 0.5);
  EXPECT_DOUBLE_EQ(run.waits[1].for_transfers, 0);
}

// Two gathers of 1 s over one port, both from the beginning: they take 2 s each, and the op waits
// for both from 0.5 s on.
TEST(LayerTimelineTest, TransfersThatShareAPortTakeLonger) {
  LayerProgram program = ProgramOf({{}, {.seconds = 0.5}, {.seconds = 1}});
  AddTransfer({{0, 2}}, 1, program);
  AddTransfer({{0, 2}}, 1, program);
  const LayerTimeline together = SimulateLayers(program, CostsOf({1, 1}, {{0}, {0}}));
  ExpectSpan(together.messages[0][0], 0, 2);
  ExpectSpan(together.messages[1][0], 0, 2);
  ExpectSpan(together.ops[2], 2, 3);
  EXPECT_NEAR(together.exposures[0].exposed + together.exposures[1].exposed, 1.5, 1e-9);
  EXPECT_NEAR(together.exposures[0].hidden + together.exposures[1].hidden, 2.5, 1e-9);
  const LayerTimeline apart = SimulateLayers(program, CostsOf({1, 1}, {{0}, {1}}));
  ExpectSpan(apart.ops[2], 1, 2);
}

// Each of three ops gives 3 s of sums that are needed at the end. With one buffer the next op waits
// until the sum before has left; with three all are queued behind each other.
TEST(LayerTimelineTest, AWindowOfBuffersDecidesHowFarOpsRunAhead) {
  LayerProgram program =
      ProgramOf({{.seconds = 1}, {}, {.seconds = 1}, {}, {.seconds = 1}, {.seconds = 1}});
  AddTransfer({{0, 1}, {2, 3}, {4, 5}}, 1, program);
  const LayerTimeline waiting = SimulateLayers(program, CostsOf({3}, {{0}}));
  ExpectSpan(waiting.ops[2], 4, 5);
  ExpectSpan(waiting.ops[5], 12, 13);
  EXPECT_NEAR(waiting.exposures[0].exposed, 9, 1e-9);

  program = ProgramOf({{.seconds = 1}, {.seconds = 1}, {.seconds = 1}, {}, {}, {.seconds = 1}});
  AddTransfer({{0, 3}, {1, 4}, {2, 5}}, 3, program);
  const LayerTimeline ahead = SimulateLayers(program, CostsOf({3}, {{0}}));
  ExpectSpan(ahead.ops[2], 2, 3);
  ExpectSpan(ahead.messages[0][2], 7, 10);
  ExpectSpan(ahead.ops[5], 10, 11);
  EXPECT_NEAR(ahead.exposures[0].exposed, 7, 1e-9);
  EXPECT_NEAR(ahead.exposures[0].hidden, 2, 1e-9);
}

// Between ranks: the giver goes on when its buffer has left, and the second message begins when the
// first one was used.
TEST(LayerTimelineTest, AMessageWaitsUntilTheReceiverHasUsedTheOneBefore) {
  LayerProgram program = ProgramOf({{.rank = 0, .seconds = 1},
                                    {.rank = 0, .seconds = 1},
                                    {.rank = 1, .seconds = 5},
                                    {.rank = 1, .seconds = 1}});
  AddTransfer({{0, 2}, {1, 3}}, 1, program);
  const LayerTimeline run = SimulateLayers(program, CostsOf({2}, {{0}}));
  ExpectSpan(run.ops[1], 3, 4);
  ExpectSpan(run.ops[2], 3, 8);
  ExpectSpan(run.messages[0][1], 8, 10);
  ExpectSpan(run.ops[3], 10, 11);
  // Both ranks wait from 1 s to 3 s, which counts once.
  EXPECT_DOUBLE_EQ(run.exposures[0].exposed, 4);
  EXPECT_DOUBLE_EQ(run.exposures[0].hidden, 0);
  EXPECT_DOUBLE_EQ(run.waits[2].for_others, 1);
  EXPECT_DOUBLE_EQ(run.waits[2].for_transfers, 2);
}

// An op that needs three messages waits from 1 s on. They arrive at 4 s, 2 s and 3 s, and each is
// waited for from where the one before it has arrived, whatever their order in the program.
TEST(LayerTimelineTest, AWaitIsDealtOutInTheOrderOfArrivals) {
  LayerProgram program = ProgramOf({{}, {.seconds = 1}, {.seconds = 1}});
  for (int transfer = 0; transfer < 3; ++transfer) AddTransfer({{0, 2}}, 1, program);
  const LayerTimeline run = SimulateLayers(program, CostsOf({4, 2, 3}));
  ExpectSpan(run.ops[2], 4, 5);
  for (int transfer = 0; transfer < 3; ++transfer) {
    EXPECT_DOUBLE_EQ(run.exposures[transfer].exposed, 1) << transfer;
  }
  EXPECT_DOUBLE_EQ(run.exposures[0].hidden, 3);
  EXPECT_DOUBLE_EQ(run.exposures[1].hidden, 1);
  EXPECT_DOUBLE_EQ(run.exposures[2].hidden, 2);
  EXPECT_DOUBLE_EQ(run.waits[2].for_transfers, 3);
}

// Of two messages one was there half a second before the op was next.
TEST(LayerTimelineTest, WhatWasThereBeforeIsNotWaitedFor) {
  LayerProgram program = ProgramOf({{}, {.seconds = 2}, {.seconds = 1}});
  for (int transfer = 0; transfer < 2; ++transfer) AddTransfer({{0, 2}}, 1, program);
  const LayerTimeline run = SimulateLayers(program, CostsOf({1.5, 3}));
  EXPECT_DOUBLE_EQ(run.waits[2].for_transfers, 1);
  EXPECT_DOUBLE_EQ(run.exposures[0].exposed, 0);
  EXPECT_DOUBLE_EQ(run.exposures[1].exposed, 1);
}

// A message from 1 s to 5 s. Its giver waits for the buffer from 3 s on, and its receiver for the
// message from `idle_from` on: what both wait counts once.
TEST(LayerTimelineTest, OfTheTwoRanksOfAMessageTheLongerWaitCounts) {
  const struct {
    double idle_from;
    double exposed;
  } cases[] = {{4, 2}, {3, 2}, {1.5, 3.5}};
  for (const auto& [idle_from, exposed] : cases) {
    LayerProgram program = ProgramOf({{.rank = 0, .seconds = 1},
                                      {.rank = 0, .seconds = 2},
                                      {.rank = 0, .seconds = 1},
                                      {.rank = 1, .seconds = idle_from},
                                      {.rank = 1, .seconds = 1},
                                      {.rank = 1, .seconds = 1}});
    AddTransfer({{0, 4}, {2, 5}}, 1, program);
    const LayerTimeline run = SimulateLayers(program, CostsOf({4}));
    ExpectSpan(run.messages[0][0], 1, 5);
    EXPECT_DOUBLE_EQ(run.waits[2].for_transfers, 2);
    EXPECT_DOUBLE_EQ(run.waits[4].for_transfers, 5 - idle_from);
    EXPECT_DOUBLE_EQ(run.message_exposures[0][0].exposed, exposed);
    EXPECT_DOUBLE_EQ(run.message_exposures[0][0].hidden, 4 - exposed);
    EXPECT_DOUBLE_EQ(run.message_exposures[0][1].exposed, 4);
  }
}

// On two ports, messages that arrive in the moment in which ops end: one of the op's rank, one that
// shares the port with what the op gives, and one of the same transfer. All times are exact in
// binary, so that whichever is looked at first, nothing may differ.
TEST(LayerTimelineTest, WhatEndsWhenAMessageArrivesFindsItsPortFree) {
  LayerProgram program = ProgramOf({{.seconds = 1}, {.seconds = 2}, {.seconds = 2}, {}, {}});
  AddTransfer({{0, 3}}, 1, program);
  AddTransfer({{1, 3}, {2, 4}}, 2, program);
  const LayerTimeline run = SimulateLayers(program, CostsOf({2, 2}, {{0}, {0, 1}}));
  EXPECT_EQ(run.messages[0][0].end, 3);
  EXPECT_EQ(run.messages[1][0].begin, 3);
  EXPECT_EQ(run.messages[1][0].end, 5);
  EXPECT_EQ(run.messages[1][1].begin, 5);
  EXPECT_EQ(run.messages[1][1].end, 7);
  EXPECT_EQ(run.ops[3].begin, 5);
  EXPECT_EQ(run.ops[4].begin, 7);
}

// A pipeline's schedule as a layer program: an op for each of its ops.
LayerProgram ProgramOf(const OpTable& table, int32_t buffers) {
  LayerProgram program;
  program.ranks.resize(table.profile().ranks());
  for (OpIndex op = 0; op < table.size(); ++op) {
    program.ops.push_back(
        {.name = absl::StrCat(op), .rank = table.rank_of(op), .seconds = table.SecondsOfStep(op)});
  }
  for (TransferIndex transfer = 0; transfer < table.transfers(); ++transfer) {
    if (!table.Passes(transfer)) continue;
    std::vector<LayerProgram::Message> messages;
    for (MicrobatchIndex m = 0; m < table.schedule().microbatches; ++m) {
      messages.push_back({table.ProducerOf(transfer, m), table.ConsumerOf(transfer, m)});
    }
    AddTransfer(std::move(messages), buffers, program);
  }
  return program;
}

TEST(LayerTimelineTest, PipelinesTakeAsLongAsTheirOwnTimelineSays) {
  int64_t compared = 0;
  ForEachSeed(200, [&](RandomSource& random) {
    PipelineProfile profile = RandomProfile(random);
    AddRandomPorts(random, profile);
    const auto microbatches = static_cast<int32_t>(1 + random.Below(5));
    const Schedule schedule =
        RandomSchedule(random, profile, microbatches, BackwardForm::kFull, true);
    ASSERT_OK_AND_ASSIGN(const OpTable table, OpTable::Create(schedule, profile));
    const auto buffers = static_cast<int32_t>(1 + random.Below(microbatches));
    const LayerProgram program = ProgramOf(table, buffers);
    if (program.transfers.empty()) return;
    MessagePlaces places(table.messages(), OpTable::kNone);
    std::vector<double> seconds;
    Ports ports;
    const TransferPorts of_profile(profile, TransferModel::kPorts);
    std::vector<TransferIndex> transfers;
    for (TransferIndex transfer = 0; transfer < table.transfers(); ++transfer) {
      if (!table.Passes(transfer)) continue;
      transfers.push_back(transfer);
      seconds.push_back(table.SecondsOf(transfer, 0));
      ports.push_back(of_profile.Of(transfer));
      for (MicrobatchIndex m = buffers; m < microbatches; ++m) {
        places[table.MessageOf(transfer, m)] = table.MessageOf(transfer, m - buffers);
      }
    }
    const auto expected = SimulatePipeline(table, TransferModel::kPorts, places);
    if (!expected.ok()) return;  // with so few buffers ranks wait for ever
    ++compared;
    const LayerTimeline run = SimulateLayers(program, CostsOf(seconds, ports));
    EXPECT_NEAR(run.seconds, expected->seconds, 1e-9);
    for (OpIndex op = 0; op < table.size(); ++op) {
      ExpectSpan(run.ops[op], expected->ops[op].begin, expected->ops[op].end);
    }
    for (size_t t = 0; t < transfers.size(); ++t) {
      for (MicrobatchIndex m = 0; m < microbatches; ++m) {
        const TimeSpan& message = expected->messages[table.MessageOf(transfers[t], m)];
        ExpectSpan(run.messages[t][m], message.begin, message.end);
      }
    }
    // What ranks wait is what they do not compute.
    for (const auto& [exposed, hidden] : run.exposures) {
      EXPECT_GE(exposed, 0);
      EXPECT_GE(hidden, -1e-9);
    }
  });
  EXPECT_GT(compared, 20);
}

}  // namespace
}  // namespace crossmesh
