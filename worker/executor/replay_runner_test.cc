// Several replays at once, and such as are started again, step by step.

#include "worker/executor/replay_runner.h"

#include "common/plan/testing/chain_plan.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/peer_table.h"
#include "worker/executor/pending_messages.h"
#include "worker/executor/stall_counter.h"
#include "worker/executor/testing/execution_fixture.h"

#include <cstdint>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ReplayOutcomes final : public ReplayObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& /*report*/) override {}
  void OnTaskDone(const TaskReport& report) override { done.push_back(report.key.plan); }
  void OnReplaysStopped(const ReplayKey& key) override { stopped.push_back(key.plan); }

  std::vector<uint32_t> done;
  std::vector<uint32_t> stopped;
};

// Of a tensor of four steps' size that b.0 copies.
class ReplayRunnerTest : public ExecutionTest {
 protected:
  ReplayRunnerTest()
      : task_spec_(MakeSpec(ChainPlan(TensorOf("[1048576]: x=1 on b.0 [-] -> x=1 on b.0 [-]"), {},
                                      {.copies = {{.slice_class = 0, .device = 0}},
                                       .chunk_bytes = Plan::kLeafBytes}),
                            "b")) {}

  static ReplayKey KeyOf(uint32_t plan) { return {.operation = 1, .epoch = 1, .plan = plan}; }
  absl::Status Start(uint32_t plan) {
    return runner_.StartReplays(
        {.key = KeyOf(plan),
         .part = task_spec_.part,
         .buffers = {{.sources = task_spec_.sources, .destinations = task_spec_.destinations}},
         .peers = task_spec_.peers},
        outcomes_);
  }
  void RunUntilIdle() {
    while (loop_->RunOnce(absl::ZeroDuration()) > 0) {
    }
  }

  const TaskSpec task_spec_;
  PeerTable peers_;
  PendingMessages pending_{16};
  ReplayRunner runner_{shared_, peers_, pending_};
  ReplayOutcomes outcomes_;
};

TEST_F(ReplayRunnerTest, ThereIsMoreToDoWhileAnyOfThemHas) {
  for (const uint32_t plan : {1, 2}) {
    ASSERT_OK(Start(plan));
    runner_.Replay(KeyOf(plan), 0, 0);
  }
  EXPECT_FALSE(runner_.Step());
  for (const uint32_t plan : {1, 2}) {
    runner_.ReplaySourceHere(KeyOf(plan), 0);
    EXPECT_TRUE(runner_.Step());
    while (runner_.Step()) {
    }
  }
  EXPECT_THAT(outcomes_.done, ElementsAre(1, 2));
}

TEST_F(ReplayRunnerTest, ThoseThatAreStoppedHaveNoRoundsLeft) {
  const absl::Duration round = absl::Seconds(5) / StallCounter::kRoundsMax;
  ASSERT_OK(Start(1));
  runner_.StopReplays(KeyOf(1), absl::CancelledError("enough"), 1);
  EXPECT_THAT(outcomes_.stopped, IsEmpty()) << "from inside a call";
  runner_.Step();
  EXPECT_THAT(outcomes_.stopped, ElementsAre(1));
  RunUntilIdle();
  clock_.Advance(round);
  EXPECT_EQ(loop_->RunOnce(absl::ZeroDuration()), 0);
  ASSERT_OK(Start(1));
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(round);
    EXPECT_EQ(loop_->RunOnce(absl::ZeroDuration()), 1) << "a round";
  }
}

TEST_F(ReplayRunnerTest, StoppingAsksForAStep) {
  ASSERT_OK(Start(1));
  WantsStep();
  runner_.StopReplays(KeyOf(1), absl::CancelledError("enough"), 1);
  EXPECT_TRUE(WantsStep());
}

}  // namespace
}  // namespace crossmesh
