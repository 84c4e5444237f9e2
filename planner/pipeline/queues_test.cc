#include "planner/pipeline/queues.h"

#include "common/base/check.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/order_proof.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"
#include "planner/pipeline/timeline.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

// The actions of a deadlock case: "run 0F0", "send 0F0 peer 1", "recv 0F0 peer 0".
struct DeadlockCase {
  explicit DeadlockCase(const Json& json) {
    schedule.ranks.resize(json.size());
    for (size_t rank = 0; rank < json.size(); ++rank) {
      for (const Json& action : json[rank]) {
        const std::vector<std::string> words = absl::StrSplit(action.get<std::string>(), ' ');
        const absl::StatusOr<Op> op = ParseOp(words[1]);
        CHECK_OK(op);
        if (words[0] != "run") continue;
        schedule.ranks[rank].push_back(*op);
        schedule.stages = std::max(schedule.stages, op->stage + 1);
        schedule.microbatches = std::max(schedule.microbatches, op->microbatch + 1);
      }
    }
    profile = UniformProfile(schedule.stages, 1, 0.5);
    profile.rank_bytes_max.resize(json.size());
    for (RankIndex rank = 0; rank < std::ssize(schedule.ranks); ++rank) {
      for (const Op& op : schedule.ranks[rank]) profile.stages[op.stage].rank = rank;
    }
  }

  RankActions Parse(const Json& json, const OpTable& ops) const {
    RankActions actions(json.size());
    for (size_t rank = 0; rank < json.size(); ++rank) {
      for (const Json& text : json[rank]) {
        const std::vector<std::string> words = absl::StrSplit(text.get<std::string>(), ' ');
        const Op op = *ParseOp(words[1]);
        Action action{.op = op.kind == OpKind::kForward ? ops.Forward(op.stage, op.microbatch)
                                                        : ops.Backward(op.stage, op.microbatch)};
        if (words[0] == "run") {
          if (op.kind == OpKind::kWeightGradient) ++action.op;  // right after that of the input
          while (ops.op(action.op) != op) ++action.op;
        } else {
          action.kind = words[0] == "send" ? Action::Kind::kSend : Action::Kind::kReceive;
          action.transfer = ops.TransfersOutOf(op)[0];
        }
        actions[rank].push_back(action);
      }
    }
    return actions;
  }

  Schedule schedule;
  PipelineProfile profile;
};

TEST(QueuesTest, ActionsOfTheCasesGoOnOrStop) {
  const Json& cases = PipelineCases("deadlock_cases");
  ASSERT_EQ(cases.size(), 11u);
  for (const Json& json : cases) {
    SCOPED_TRACE(absl::StrCat(json["case"].get<std::string>(), ", waiting ",
                              json["channel_slots"].get<int>()));
    const DeadlockCase parsed(json["program"]);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(parsed.schedule, parsed.profile));
    const RankActions actions = parsed.Parse(json["program"], ops);
    EXPECT_EQ(ProveLines(ops, actions, QueueScope::kWholeRank).ok(), json["fifo_match"]);
    const absl::StatusOr<double> seconds = SimulateQueues(
        ops, actions, {.scope = QueueScope::kWholeRank, .waiting_max = json["channel_slots"]});
    ASSERT_EQ(seconds.ok(), json["progress"]) << seconds.status();
    if (seconds.ok()) continue;
    EXPECT_EQ(seconds.status().code(), absl::StatusCode::kFailedPrecondition);
    for (const Json& head : json["blocked_heads"]) {  // "dev 0: send 0F1"
      EXPECT_THAT(seconds.status().message(),
                  HasSubstr(absl::StrReplaceAll(
                      head.get<std::string>(),
                      {{"dev", "rank"}, {"recv", "receive"}, {"run", "compute"}})));
    }
  }
}

TEST(QueuesTest, ActionsOfTheCasesAreMadeFromTheirSchedules) {
  for (const Json& json : PipelineCases("deadlock_cases")) {
    const std::string name = json["case"];
    if (name.find("swapped") != std::string::npos) continue;
    SCOPED_TRACE(name);
    const DeadlockCase parsed(json["program"]);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(parsed.schedule, parsed.profile));
    const bool is_passive = name.find("passive") != std::string::npos;
    EXPECT_THAT(
        MakeRankActions(ops, is_passive ? ReceivePlacement::kAtSend : ReceivePlacement::kBeforeUse),
        IsOkAndHolds(parsed.Parse(json["program"], ops)));
  }
}

// The reason for one transfer for each edge and direction: whatever the schedule, if only its ops
// have an order and both ends agree, nothing can be stuck.
TEST(QueuesTest, TransfersAreNeverStuck) {
  int stuck_elsewhere = 0;
  ForEachSeed(300, [&](RandomSource& random) {
    PipelineProfile profile = RandomProfile(random);
    Schedule schedule = RandomSchedule(random, profile, 4, BackwardForm::kSplit, true);
    if (random.OneIn(2)) {
      AddRandomPairs(random, profile);
      FuseRandomOps(random, profile, schedule);
    }
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    ASSERT_OK_AND_ASSIGN(const PipelineTimeline run,
                         SimulatePipeline(ops, TransferModel::kLatency));
    for (const ReceivePlacement placement :
         {ReceivePlacement::kBeforeUse, ReceivePlacement::kAtSend}) {
      ASSERT_OK_AND_ASSIGN(const RankActions actions, MakeRankActions(ops, placement));
      EXPECT_OK(ProveLines(ops, actions, QueueScope::kTransfer));
      for (const int32_t waiting_max : {0, 1, 5}) {
        ASSERT_OK_AND_ASSIGN(const double seconds,
                             SimulateQueues(ops, actions, {.waiting_max = waiting_max}));
        EXPECT_GE(seconds, run.seconds - 1e-9);
      }
      stuck_elsewhere += !SimulateQueues(ops, actions, {.scope = QueueScope::kRank}).ok();
    }
  });
  EXPECT_GT(stuck_elsewhere, 50);
}

TEST(QueuesTest, WhatGoesOnWithNothingWaitingGoesOnWithAny) {
  int went_on = 0;
  ForEachSeed(300, [&](RandomSource& random) {
    const PipelineProfile profile = RandomProfile(random);
    const Schedule schedule = RandomSchedule(random, profile, 3, BackwardForm::kFull, true);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    ASSERT_OK_AND_ASSIGN(const RankActions actions,
                         MakeRankActions(ops, ReceivePlacement::kAtSend));
    for (const QueueScope scope :
         {QueueScope::kWholeRank, QueueScope::kRank, QueueScope::kPeer, QueueScope::kTransfer}) {
      if (!SimulateQueues(ops, actions, {.scope = scope}).ok()) continue;
      ++went_on;
      for (const int32_t waiting_max : {1, 2, 7}) {
        EXPECT_OK(SimulateQueues(ops, actions, {.scope = scope, .waiting_max = waiting_max}));
      }
    }
  });
  EXPECT_GT(went_on, 300);
}

// Rank 1 has an op of 6 s and one of 2 s to do before it takes the first of two messages, of which
// one may wait. So the second one, which could be sent at 5, is sent at 8.
TEST(QueuesTest, AMessageWaitsUntilTheOneBeforeItIsTaken) {
  PipelineProfile profile = UniformProfile(3, 1, 0);
  profile.rank_bytes_max.resize(2);
  profile.stages[2] = {.rank = 1, .forward_seconds = 6, .input_gradient_seconds = 2};
  profile.edges = {{.from = 0, .to = 1, .forward_seconds = 3}};
  ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                       ParseSchedule("0F0 0F1 0B0 0B1\n2F0 2B0 1F0 1F1 1B0 1B1 2F1 2B1\n"));
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  ASSERT_OK_AND_ASSIGN(const RankActions actions,
                       MakeRankActions(ops, ReceivePlacement::kBeforeUse));
  const auto seconds = [&](int32_t waiting_max) {
    return SimulateQueues(ops, actions,
                          {.scope = QueueScope::kWholeRank, .waiting_max = waiting_max});
  };
  // Taken at 8 and 11, computed until 12; then four seconds backward and eight of the other stage.
  EXPECT_THAT(seconds(1), IsOkAndHolds(24));
  // Sent at 5, there at 8, taken at 9.
  EXPECT_THAT(seconds(2), IsOkAndHolds(22));
}

TEST(QueuesTest, EndsThatDisagreeAreNamed) {
  ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                       ParseSchedule("0F0 0F1 0B1 0B0\n1F0 1F1 1B0 1B1\n"));
  const PipelineProfile profile = UniformProfile(2, 1, 0);
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  ASSERT_OK_AND_ASSIGN(const RankActions actions,
                       MakeRankActions(ops, ReceivePlacement::kBeforeUse));
  EXPECT_THAT(ProveLines(ops, actions, QueueScope::kTransfer),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("from rank 1 to rank 0"),
                             HasSubstr("found 1B0 sent and 1B1 received in place 0"))));
}

}  // namespace
}  // namespace crossmesh
