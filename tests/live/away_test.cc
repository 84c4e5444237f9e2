// Processes that are away for longer than the loss limit, and one that comes under another's name:
// what they held is free soon after.

#include "client/cli/cli.h"
#include "client/outcome.h"
#include "common/base/clock.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// So that no lock ends with a deadline while a test waits.
constexpr int64_t kDeadlineSeconds = 3600;
constexpr absl::Duration kArriveMax = absl::Seconds(30);
// From the end of what was wrong until all is as before.
constexpr absl::Duration kServiceMax = absl::Seconds(10);
// Longer than the loss limit and than keepalive.
constexpr absl::Duration kPause = absl::Seconds(12);

class AwayTest : public testing::Test {
 protected:
  // node-0 sends to node-1 and node-2, in place: so that this process sees the bytes arrive.
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = {"node-0", "node-1", "node-2"}}));
    ASSERT_OK_AND_ASSIGN(case_, ReshardCase::Create({.manifest = TensorsOf(64 << 20),
                                                     .binding = v1::BINDING_MODE_IN_PLACE},
                                                    *cluster_));
    case_->spec().mutable_deadline()->set_seconds(kDeadlineSeconds);
  }

  // One that takes some seconds, when its bytes have begun to arrive: its id.
  std::string StartSlowly() {
    v1::ReshardSpec slow = case_->spec();
    slow.set_nic_share(0.002);
    running_ = std::make_unique<RunningReshard>(cluster_->controller_address(), slow);
    const absl::StatusOr<std::string> id = running_->WaitForId();
    EXPECT_OK(id);
    EXPECT_TRUE(WaitUntil(kArriveMax, [&] { return case_->HasArrived("node-2"); }));
    EXPECT_FALSE(running_->HasEnded());
    return id.value_or("");
  }

  void ExpectCommitsSoon(uint8_t version) {
    ASSERT_OK(case_->FillSource(version));
    absl::Status outcome;
    EXPECT_TRUE(WaitUntil(kServiceMax, [&] {
      const auto operation = Execute(cluster_->controller_address(), case_->spec());
      outcome = operation.ok() ? OutcomeOf(*operation) : operation.status();
      return outcome.ok();
    })) << outcome;
    EXPECT_OK(case_->CheckAll(version));
  }

  std::unique_ptr<LiveCluster> cluster_;
  std::unique_ptr<ReshardCase> case_;
  std::unique_ptr<RunningReshard> running_;
};

TEST_F(AwayTest, AWorkerThatWasAwayGivesUpWhatHasEnded) {
  StartSlowly();
  cluster_->Signal("node-2", SIGSTOP);
  ASSERT_OK(cluster_->WaitForWorker("node-2", v1::WORKER_STATE_LOST));
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, running_->Result());
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_PARTIAL) << operation.ShortDebugString();
  EXPECT_THAT(cluster_->client().CancelOperation(operation.id(), ""),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("PARTIAL")));
  cluster_->Signal("node-2", SIGCONT);
  ExpectCommitsSoon(2);
}

TEST_F(AwayTest, AControllerThatWasAwayDoesNotBlameItsWorkers) {
  const std::string id = StartSlowly();
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  cluster_->Signal(LiveCluster::kController, SIGSTOP);
  // The pause is what is tested: nothing happens in it that could be waited for.
  EXPECT_TRUE(WaitUntil(2 * kPause, [&] { return clock.Monotonic() - begin > kPause; }));
  cluster_->Signal(LiveCluster::kController, SIGCONT);

  // All are back, and the operation goes on.
  const auto registered = [&](const std::string& worker) {
    const auto value = cluster_->Metric(worker, "crossmesh_worker_registered");
    return value.ok() && *value == 1;
  };
  for (const std::string& worker : cluster_->workers()) {
    EXPECT_TRUE(WaitUntil(kServiceMax, [&] { return registered(worker); })) << worker;
  }
  EXPECT_THAT(
      cluster_->Metric(LiveCluster::kController, "crossmesh_controller_worker_losses_total"),
      testing::AnyOf(IsOkAndHolds(0), StatusIs(absl::StatusCode::kNotFound)));
  v1::Operation operation;
  EXPECT_TRUE(WaitUntil(kServiceMax, [&] {
    const absl::StatusOr<v1::Operation> now = cluster_->client().GetOperation(id);
    if (now.ok()) operation = *now;
    return operation.has_end_time();
  }));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
  ExpectCommitsSoon(2);
}

TEST_F(AwayTest, ASecondProcessOfANameIsRefusedAndTheFirstServesOn) {
  ASSERT_OK_AND_ASSIGN(
      ChildProcess second,
      ChildProcess::Start({.program = ProgramPath("crossmesh-worker"),
                           .arguments = {"--name", "node-1", "--devices", "node-1.0",
                                         "--controller", cluster_->controller_address(), "--listen",
                                         "unix:" + cluster_->PathOf("second.sock")},
                           .log_path = cluster_->PathOf("second.log")}));
  int served = 0;
  std::optional<std::string> exit;
  for (uint8_t version = 2; version < 100 && !exit.has_value(); ++version) {
    ASSERT_OK(case_->FillSource(version));
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster_->controller_address(), case_->spec()));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
    ++served;
    WaitUntil(absl::Seconds(1), [&] { return (exit = second.ExitText()).has_value(); });
  }
  EXPECT_EQ(exit, "exit status 76");
  EXPECT_GE(served, 2);
  ASSERT_OK_AND_ASSIGN(const std::string log, ReadFile(cluster_->PathOf("second.log")));
  EXPECT_THAT(log, HasSubstr("expected a name that no other process has"));

  // Its own next process gets in at once.
  cluster_->Kill("node-1");
  ASSERT_OK(cluster_->StartWorker("node-1"));
  ASSERT_OK(cluster_->WaitForAllWorkers());
  ASSERT_OK(case_->Prepare("node-1"));
  ExpectCommitsSoon(200);
}

TEST_F(AwayTest, AWorkerThatIsToldToStopIsDraining) {
  StartSlowly();
  cluster_->Signal("node-1", SIGTERM);
  EXPECT_OK(cluster_->WaitForWorker("node-1", v1::WORKER_STATE_DRAINING));
  EXPECT_OK(running_->Result().status());
}

TEST_F(AwayTest, ALostWorkerIsForgottenWhenItIsAskedFor) {
  EXPECT_THAT(cluster_->client().ForgetWorker("node-2"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("READY")));
  cluster_->Kill("node-2");
  ASSERT_OK(cluster_->WaitForWorker("node-2", v1::WORKER_STATE_LOST));
  EXPECT_OK(cluster_->client().ForgetWorker("node-2"));
  EXPECT_THAT(cluster_->GetWorker("node-2"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace crossmesh
