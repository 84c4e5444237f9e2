#include "worker/agent/session_agent.h"

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/testing/metric_value.h"
#include "common/metrics/worker_metrics.h"
#include "common/rpc/not_leader.h"
#include "common/rpc/push_back.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "worker/agent/grpc_session_caller.h"
#include "worker/agent/testing/fake_controller.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Seen = FakeController::Seen;

// A host that says how many heartbeats it was asked for, and waits for a drain.
class FakeHost final : public SessionHost {
 public:
  void MakeHeartbeat(uint64_t epoch, absl::AnyInvocable<void(Heartbeat)> done) override {
    Heartbeat heartbeat;
    heartbeat.add_held_operations(absl::StrCat("op-of-", epoch));
    heartbeat.set_memory_bytes(++heartbeats_);
    done(std::move(heartbeat));
  }
  void Refresh(v1::WorkerSessionRequest::Register& registration) override {
    registration.set_transport("refreshed");
  }
  void OnDrain() override {
    MutexLock lock(mutex_);
    drained_ = true;
    changed_.SignalAll();
  }
  void OnUndrain() override {
    MutexLock lock(mutex_);
    drained_ = false;
    changed_.SignalAll();
  }
  void OnOperationsEnded(uint64_t epoch, const std::vector<std::string>& operations) override {
    MutexLock lock(mutex_);
    for (const std::string& operation : operations) {
      ended_ = absl::StrCat(operation, " at ", epoch);
    }
    changed_.SignalAll();
  }
  void OnRefused(const absl::Status& why) override {
    MutexLock lock(mutex_);
    refused_ = why;
    changed_.SignalAll();
  }
  bool WaitForDrain() {
    return WaitUntil([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return drained_; });
  }
  bool WaitForUndrain() {
    return WaitUntil([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !drained_; });
  }
  // What it was told of; empty after 20 s.
  std::string WaitForEnded() {
    WaitUntil([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !ended_.empty(); });
    MutexLock lock(mutex_);
    return ended_;
  }
  // OK after 20 s without.
  absl::Status WaitForRefusal() {
    WaitUntil([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !refused_.ok(); });
    MutexLock lock(mutex_);
    return refused_;
  }

 private:
  bool WaitUntil(const std::function<bool()>& holds) {
    MutexLock lock(mutex_);
    while (!holds()) {
      if (changed_.WaitFor(mutex_, absl::Seconds(20))) return holds();
    }
    return true;
  }

  int64_t heartbeats_ = 0;
  Mutex mutex_;
  CondVar changed_;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  std::string ended_ ABSL_GUARDED_BY(mutex_);
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);
};

class SessionAgentTest : public ::testing::Test {
 protected:
  SessionAgentTest() {
    loop_ = *EventLoop::Create(clock_, {.spin = absl::ZeroDuration()});
    loop_->Start();
  }
  ~SessionAgentTest() override {
    if (agent_ != nullptr) Leave();
    loop_->Stop();
  }

  std::string Address(int number) const {
    return absl::StrCat("unix:", folder_.PathOf(absl::StrCat("controller-", number)));
  }
  std::unique_ptr<FakeController> StartController(int number) {
    auto controller = FakeController::Start(Address(number));
    EXPECT_OK(controller);
    return *std::move(controller);
  }
  absl::StatusOr<std::unique_ptr<SessionAgent>> Create(SessionAgent::Options options) {
    return SessionAgent::Create({.loop = *loop_, .host = host_, .metrics = metrics_},
                                std::move(options),
                                std::make_unique<GrpcSessionCaller>(*loop_, /*insecure=*/false));
  }
  void StartAgent(std::vector<std::string> controllers) {
    SessionAgent::Options options{.controllers = std::move(controllers),
                                  .refused_max = absl::Milliseconds(200),
                                  .version_refused_max = version_refused_max_,
                                  .seed = seed_};
    options.registration.set_worker("w1");
    options.registration.set_incarnation(99);
    options.registration.set_protocol(8);
    options.registration.set_oldest_protocol(7);
    auto agent = Create(std::move(options));
    ASSERT_OK(agent);
    agent_ = *std::move(agent);
    loop_->RunAndWait([this] { agent_->Start(); });
  }
  void Leave() {
    Mutex mutex;
    CondVar changed;
    bool left = false;
    loop_->Post([&] {
      agent_->Leave([&] {
        MutexLock lock(mutex);
        left = true;
        changed.SignalAll();
      });
    });
    MutexLock lock(mutex);
    while (!left) changed.Wait(mutex);
    agent_ = nullptr;
  }

  bool IsRegistered() const { return ValueOf(metrics_.metrics(), metric::kRegistered) == 1; }

  const TemporaryFolder folder_;
  const RealClock clock_;
  FakeHost host_;
  WorkerMetrics metrics_;
  std::optional<absl::Duration> version_refused_max_;
  uint64_t seed_ = 1;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<SessionAgent> agent_;
};

TEST_F(SessionAgentTest, RegistersSendsHeartbeatsAndLeaves) {
  const auto controller = StartController(1);
  StartAgent({controller->address()});
  ASSERT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 3; }));
  const Seen seen = controller->seen("w1");
  EXPECT_EQ(seen.registration.incarnation(), 99);
  EXPECT_EQ(seen.registration.transport(), "refreshed");
  EXPECT_EQ(seen.registrations, 1);
  EXPECT_GE(seen.heartbeat.memory_bytes(), 3);
  EXPECT_TRUE(IsRegistered());
  EXPECT_FALSE(seen.left);
  Leave();
  EXPECT_TRUE(controller->seen("w1").left);
  EXPECT_FALSE(IsRegistered());
}

// By its seed the second heartbeat is due 0.2 s after the first, of a minute.
TEST_F(SessionAgentTest, ItsTurnIsAPartOfTheIntervalAfterItHasRegistered) {
  seed_ = 253;
  const auto controller = StartController(1);
  controller->SetHeartbeatInterval(absl::Minutes(1));
  StartAgent({controller->address()});
  EXPECT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 2; }));
}

// By its seed the second heartbeat is due after half a minute and more, and one 0.3 s after that
// which was hurried.
TEST_F(SessionAgentTest, HurriesAHeartbeatWhenItIsAskedAndHasATurnOfItsOwnThen) {
  seed_ = 1961;
  const auto controller = StartController(1);
  controller->SetHeartbeatInterval(absl::Minutes(1));
  StartAgent({controller->address()});
  ASSERT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.registrations >= 1; }));
  // The first one is sent at once.
  ASSERT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
  loop_->RunAndWait([this] { agent_->HurryHeartbeat(); });
  EXPECT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 3; }));
}

TEST_F(SessionAgentTest, ComesAgainWhenItsSessionEnds) {
  const auto controller = StartController(1);
  StartAgent({controller->address()});
  ASSERT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
  controller->EndSession("w1", absl::UnavailableError("restart"));
  ASSERT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.registrations >= 2; }));
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kSessionReconnects, "eof"), 1);
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kSessionReconnects), 1);
}

TEST_F(SessionAgentTest, GoesToTheNextControllerWhenOneDoesNotLead) {
  const auto standby = StartController(1);
  const auto leader = StartController(2);
  standby->Refuse(NotLeaderError(std::nullopt));
  StartAgent({standby->address() + "," + leader->address()});
  EXPECT_TRUE(leader->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
  EXPECT_GE(standby->seen("w1").registrations, 1);
}

TEST_F(SessionAgentTest, GoesToTheLeaderThatAControllerNames) {
  const auto standby = StartController(1);
  const auto leader = StartController(2);
  standby->Refuse(NotLeaderError(leader->address()));
  StartAgent({standby->address()});
  EXPECT_TRUE(leader->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kSessionReconnects, "not_leader"), 1);
}

TEST_F(SessionAgentTest, ComesToTheSameControllerWhenItWasToldTo) {
  const auto busy = StartController(1);
  const auto other = StartController(2);
  busy->Refuse(PushBackError("worker w1: too many", absl::Milliseconds(20)));
  StartAgent({busy->address(), other->address()});
  ASSERT_TRUE(busy->WaitUntil("w1", [](const Seen& s) { return s.registrations >= 3; }));
  busy->Refuse(absl::OkStatus());
  EXPECT_TRUE(busy->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
  EXPECT_EQ(other->seen("w1").registrations, 0);
}

TEST_F(SessionAgentTest, CountsThatNoControllerLeads) {
  const auto standby = StartController(1);
  standby->Refuse(NotLeaderError(std::nullopt));
  StartAgent({standby->address()});
  ASSERT_TRUE(standby->WaitUntil("w1", [](const Seen& s) { return s.registrations >= 2; }));
  EXPECT_GE(ValueOf(metrics_.metrics(), metric::kSessionReconnects, "not_leader"), 1);
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kSessionReconnects, "eof"), 0);
}

TEST_F(SessionAgentTest, ComesBackFromALeaderThatMayNotBeSpokenTo) {
  const auto standby = StartController(1);
  standby->Refuse(NotLeaderError("198.51.100.1:7400"));
  StartAgent({standby->address()});
  ASSERT_TRUE(standby->WaitUntil("w1", [](const Seen& s) { return s.registrations >= 2; }));
  standby->Refuse(absl::OkStatus());
  EXPECT_TRUE(standby->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
}

TEST_F(SessionAgentTest, FollowsTheLeaderWhenItChanges) {
  const auto first = StartController(1);
  const auto second = StartController(2);
  second->Refuse(NotLeaderError(first->address()));
  StartAgent({first->address(), second->address()});
  ASSERT_TRUE(first->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
  second->Refuse(absl::OkStatus());
  first->Refuse(NotLeaderError(second->address()));
  first->EndSession("w1", NotLeaderError(second->address()));
  EXPECT_TRUE(second->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kSessionReconnects, "not_leader"), 1);
}

TEST_F(SessionAgentTest, WaitsForAControllerThatIsNotThereYet) {
  StartAgent({Address(1)});
  const auto controller = StartController(1);
  EXPECT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
}

TEST_F(SessionAgentTest, LeavesWithoutASession) {
  StartAgent({Address(1)});
  Leave();
}

TEST_F(SessionAgentTest, TellsItsHostToDrainAndNotTo) {
  const auto controller = StartController(1);
  StartAgent({controller->address()});
  ASSERT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
  controller->SendDrain("w1");
  EXPECT_TRUE(host_.WaitForDrain());
  controller->SendUndrain("w1");
  EXPECT_TRUE(host_.WaitForUndrain());
}

TEST_F(SessionAgentTest, TellsItsHostWhatHasEnded) {
  const auto controller = StartController(1);
  StartAgent({controller->address()});
  ASSERT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
  ASSERT_THAT(controller->seen("w1").heartbeat.held_operations(), ElementsAre("op-of-7"));
  controller->SendOperationsEnded("w1", "op-of-7");
  EXPECT_EQ(host_.WaitForEnded(), "op-of-7 at 7");
}

TEST_F(SessionAgentTest, GivesUpWhenItsNameStaysAnotherProcesss) {
  const auto controller = StartController(1);
  controller->Refuse(absl::AlreadyExistsError("worker w1: another one"));
  StartAgent({controller->address()});
  EXPECT_THAT(host_.WaitForRefusal(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("another one")));
  EXPECT_GE(controller->seen("w1").registrations, 1);
}

TEST_F(SessionAgentTest, GetsInWhenTheNameIsFreeInTime) {
  const auto controller = StartController(1);
  controller->Refuse(absl::UnavailableError("stopping"));
  StartAgent({controller->address()});
  // Longer than another process's name would be waited for.
  ASSERT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.registrations >= 3; }));
  controller->Refuse(absl::OkStatus());
  EXPECT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
}

TEST_F(SessionAgentTest, AnOlderControllerIsSpokenToInItsOwnProtocol) {
  const auto controller = StartController(1);
  controller->Refuse(absl::FailedPreconditionError("worker w1: expected protocol 7, found 8"));
  StartAgent({controller->address()});
  ASSERT_TRUE(controller->WaitUntil(
      "w1", [](const Seen& s) { return s.registrations >= 2 && s.registration.protocol() == 7; }));
  controller->Refuse(absl::OkStatus());
  EXPECT_TRUE(controller->WaitUntil("w1", [](const Seen& s) { return s.heartbeats >= 1; }));
}

TEST_F(SessionAgentTest, GivesUpWhereItsVersionStaysRefusedAndIsNotToWait) {
  version_refused_max_ = absl::Milliseconds(200);
  const auto controller = StartController(1);
  controller->Refuse(absl::FailedPreconditionError("worker w1: expected protocol 9, found 8"));
  StartAgent({controller->address()});
  EXPECT_THAT(host_.WaitForRefusal(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("expected protocol 9")));
  EXPECT_GE(controller->seen("w1").registrations, 2);  // in both protocols
}

TEST_F(SessionAgentTest, NeedsAControllerThatMayBeSpokenTo) {
  EXPECT_THAT(Create({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("controller")));
  EXPECT_THAT(Create({.controllers = {"198.51.100.1:7400"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("198.51.100.1:7400")));
}

}  // namespace
}  // namespace crossmesh
