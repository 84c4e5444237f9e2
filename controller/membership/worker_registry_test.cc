#include "controller/membership/worker_registry.h"

#include "common/base/fake_clock.h"
#include "common/testing/status_matchers.h"
#include "controller/membership/testing/joined_worker.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Writes down what it hears, and looks into the registry while it does, which a lock held by the
// caller would turn into a deadlock.
class Listener : public MembershipListener {
 public:
  void OnWorkerLost(const WorkerRecord& worker, const absl::Status& why) override {
    heard.push_back("lost " + worker.name + ": " + std::string(why.message()));
    if (registry != nullptr) registry->List();
  }
  void OnWorkerReady(const WorkerRecord& worker) override {
    heard.push_back("ready " + worker.name);
    if (registry != nullptr) registry->List();
  }
  void OnGpuProcessLost(const RankName& process, const absl::Status& why) override {
    heard.push_back("lost " + process.ToString() + ": " + std::string(why.message()));
    if (registry != nullptr) registry->List();
  }

  std::vector<std::string> heard;
  WorkerRegistry* registry = nullptr;
};

class WorkerRegistryTest : public testing::Test {
 protected:
  WorkerRegistryTest() { listener_.registry = &registry_; }

  WorkerState StateOf(const std::string& worker) { return registry_.Get(worker)->state; }
  // With a sweep every second.
  void Pass(absl::Duration duration) {
    for (; duration > absl::ZeroDuration(); duration -= absl::Seconds(1)) {
      clock_.Advance(absl::Seconds(1));
      registry_.Sweep();
    }
  }
  // This process does not run, and sweeps when it does again.
  void Stand(absl::Duration duration) {
    clock_.Advance(duration);
    registry_.Sweep();
  }

  FakeClock clock_;
  Listener listener_;
  WorkerRegistry registry_{WorkerRegistry::Options{}, clock_, listener_};
};

TEST_F(WorkerRegistryTest, AWorkerIsSuspectAfterTwoMissedHeartbeatsAndLostAfterTenSeconds) {
  Join(registry_, RecordOf("w0", {{"a", 0}}));
  Pass(absl::Seconds(6));
  EXPECT_EQ(StateOf("w0"), WorkerState::kReady);
  Pass(absl::Seconds(1));
  EXPECT_EQ(StateOf("w0"), WorkerState::kSuspect);
  Pass(absl::Seconds(3));
  EXPECT_EQ(StateOf("w0"), WorkerState::kLost);
  EXPECT_THAT(listener_.heard, ElementsAre("ready w0", "lost w0: no heartbeat for 10s"));
}

TEST_F(WorkerRegistryTest, AHeartbeatMakesASuspectReadyAgain) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  Pass(absl::Seconds(7));
  EXPECT_TRUE(registry_.Beat("w0", session, {.memory_bytes = 5, .running_tasks = 1}));
  EXPECT_EQ(StateOf("w0"), WorkerState::kReady);
  EXPECT_EQ(registry_.Get("w0")->memory_bytes, 5);
}

TEST_F(WorkerRegistryTest, ALostWorkerIsReportedOnce) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  registry_.SessionEnded("w0", session, /*left=*/false);
  registry_.SessionEnded("w0", session, /*left=*/false);
  Pass(absl::Seconds(60));
  EXPECT_THAT(listener_.heard, ElementsAre("ready w0", "lost w0: its session ended"));
}

TEST_F(WorkerRegistryTest, APauseOfTheControllerIsNoWorkersSilence) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  Pass(absl::Seconds(1));
  Stand(absl::Minutes(1));
  EXPECT_EQ(StateOf("w0"), WorkerState::kReady);
  // It broke off meanwhile, and comes again.
  registry_.SessionEnded("w0", session, /*left=*/false);
  EXPECT_EQ(StateOf("w0"), WorkerState::kReady);
  Pass(absl::Seconds(3));
  Join(registry_, RecordOf("w0", {{"a", 0}}));
  Pass(absl::Seconds(6));
  EXPECT_EQ(StateOf("w0"), WorkerState::kReady);
  EXPECT_THAT(listener_.heard, ElementsAre("ready w0", "ready w0"));
}

TEST_F(WorkerRegistryTest, AWorkerThatDoesNotComeBackAfterAPauseIsLost) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  Pass(absl::Seconds(1));
  Stand(absl::Minutes(1));
  registry_.SessionEnded("w0", session, /*left=*/false);
  Pass(absl::Seconds(6));
  EXPECT_NE(StateOf("w0"), WorkerState::kLost);
  Pass(absl::Seconds(1));
  EXPECT_EQ(StateOf("w0"), WorkerState::kLost);
  // The excuse does not last.
  const uint64_t other = Join(registry_, RecordOf("w1", {{"b", 0}}));
  Pass(absl::Seconds(3));
  registry_.SessionEnded("w1", other, /*left=*/false);
  EXPECT_EQ(StateOf("w1"), WorkerState::kLost);
}

TEST_F(WorkerRegistryTest, AnotherProcessDoesNotGetTheNameOfOneWhoseStreamIsOpen) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}, 5));
  for (const uint64_t incarnation : {uint64_t{4}, uint64_t{6}, UINT64_MAX}) {
    EXPECT_THAT(registry_.Register(RecordOf("w0", {{"a", 0}}, incarnation)),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         testing::AllOf(HasSubstr("w0"), HasSubstr("incarnation 5 at at-w0"))));
  }
  WorkerRecord elsewhere = RecordOf("w0", {{"a", 0}}, 5);  // a copy of what the list shows
  elsewhere.execution_address = "elsewhere";
  EXPECT_THAT(registry_.Register(elsewhere), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_TRUE(registry_.Beat("w0", session, {}));
  EXPECT_THAT(listener_.heard, ElementsAre("ready w0"));
}

TEST_F(WorkerRegistryTest, AnotherProcessGetsTheNameOnceTheStreamHasEnded) {
  const uint64_t old = Join(registry_, RecordOf("w0", {{"a", 0}}, 1));
  registry_.StreamEnded("w0", old);
  const uint64_t now = Join(registry_, RecordOf("w0", {{"a", 0}}, 2));
  EXPECT_THAT(listener_.heard,
              ElementsAre("ready w0", "lost w0: superseded by a new process", "ready w0"));
  EXPECT_FALSE(registry_.Beat("w0", old, {}));
  registry_.StreamEnded("w0", old);
  registry_.SessionEnded("w0", old, /*left=*/false);
  EXPECT_EQ(StateOf("w0"), WorkerState::kReady);
  EXPECT_TRUE(registry_.Beat("w0", now, {}));
  EXPECT_THAT(registry_.Register(RecordOf("w0", {{"a", 0}}, 3)),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(WorkerRegistryTest, AnotherProcessGetsTheNameOfASilentOneAfterTheLossLimit) {
  Join(registry_, RecordOf("w0", {{"a", 0}}, 1));
  Pass(absl::Seconds(9));
  EXPECT_THAT(registry_.Register(RecordOf("w0", {{"a", 0}}, 2)),
              StatusIs(absl::StatusCode::kAlreadyExists));
  Pass(absl::Seconds(1));
  Join(registry_, RecordOf("w0", {{"a", 0}}, 2));
}

TEST_F(WorkerRegistryTest, AnIncarnationFromTheFutureDoesNotKeepTheName) {
  const uint64_t stranger = Join(registry_, RecordOf("w0", {{"a", 0}}, UINT64_MAX));
  registry_.SessionEnded("w0", stranger, /*left=*/false);
  Join(registry_, RecordOf("w0", {{"a", 0}}, 1));
  EXPECT_EQ(StateOf("w0"), WorkerState::kReady);
}

TEST_F(WorkerRegistryTest, TheSameProcessMayOpenASecondSessionWithoutBeingLost) {
  Join(registry_, RecordOf("w0", {{"a", 0}}, 1));
  Join(registry_, RecordOf("w0", {{"a", 0}}, 1));
  EXPECT_THAT(listener_.heard, ElementsAre("ready w0", "ready w0"));
}

TEST_F(WorkerRegistryTest, AWorkerThatWasLostAndReturnsLeavesItsFormerDevicesToTheirOwner) {
  registry_.SessionEnded("w0", Join(registry_, RecordOf("w0", {{"a", 0}}, 1)), /*left=*/false);
  Join(registry_, RecordOf("w1", {{"a", 0}}));
  Join(registry_, RecordOf("w0", {{"a", 1}}, 2));
  const std::vector<DeviceId> devices = {{"a", 0}};
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerRecord> owners, registry_.OwnersOf(devices));
  ASSERT_EQ(owners.size(), 1u);
  EXPECT_EQ(owners[0].name, "w1");
  EXPECT_THAT(listener_.heard,
              ElementsAre("ready w0", "lost w0: its session ended", "ready w1", "ready w0"));
}

TEST_F(WorkerRegistryTest, ALostWorkerCanBeForgottenAndALiveOneNot) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  EXPECT_THAT(registry_.Forget("w0"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found READY")));
  registry_.SessionEnded("w0", session, /*left=*/false);
  EXPECT_OK(registry_.Forget("w0"));
  EXPECT_TRUE(registry_.List().empty());
  EXPECT_THAT(registry_.Forget("w0"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("w0")));
}

TEST_F(WorkerRegistryTest, ALostWorkerRunsNothing) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  EXPECT_TRUE(registry_.Beat("w0", session, {.running_tasks = 1, .running_operations = {"op-1"}}));
  registry_.SessionEnded("w0", session, /*left=*/false);
  EXPECT_EQ(registry_.Get("w0")->running_tasks, 0);
  EXPECT_TRUE(registry_.Get("w0")->running_operations.empty());
}

TEST_F(WorkerRegistryTest, ADeviceOfALiveWorkerIsRefusedWithBothNames) {
  Join(registry_, RecordOf("w0", {{"a", 0}}));
  EXPECT_THAT(registry_.Register(RecordOf("w1", {{"a", 0}})),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       testing::AllOf(HasSubstr("w1"), HasSubstr("a.0"), HasSubstr("w0"))));
}

TEST_F(WorkerRegistryTest, TheDevicesOfALostWorkerAreFree) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  registry_.SessionEnded("w0", session, /*left=*/false);
  Join(registry_, RecordOf("w1", {{"a", 0}}));
}

TEST_F(WorkerRegistryTest, AWorkerWithoutNameOrDevicesIsRefused) {
  EXPECT_THAT(registry_.Register(RecordOf("", {{"a", 0}})),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(registry_.Register(RecordOf("w0", {})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("w0")));
}

TEST_F(WorkerRegistryTest, AWorkerThatLeftIsForgotten) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  registry_.SessionEnded("w0", session, /*left=*/true);
  EXPECT_THAT(registry_.Get("w0"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(listener_.heard, ElementsAre("ready w0", "lost w0: it left"));
}

TEST_F(WorkerRegistryTest, ADrainingWorkerStaysSoWhateverItMissesOrRenews) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  ASSERT_OK(registry_.Drain("w0"));
  Pass(absl::Seconds(8));
  EXPECT_EQ(StateOf("w0"), WorkerState::kDraining);
  EXPECT_TRUE(registry_.Beat("w0", session, {}));
  EXPECT_EQ(StateOf("w0"), WorkerState::kDraining);
  // Streams end with age.
  const uint64_t renewed = Join(registry_, RecordOf("w0", {{"a", 0}}));
  EXPECT_EQ(StateOf("w0"), WorkerState::kDraining);
  registry_.SessionEnded("w0", renewed, /*left=*/false);
  const uint64_t returned = Join(registry_, RecordOf("w0", {{"a", 0}}));
  EXPECT_EQ(StateOf("w0"), WorkerState::kDraining);
  registry_.StreamEnded("w0", returned);
  Join(registry_, RecordOf("w0", {{"a", 0}}, 2));
  EXPECT_EQ(StateOf("w0"), WorkerState::kReady) << "a new process was not asked";
}

TEST_F(WorkerRegistryTest, AWorkerMaySayItselfThatItDrains) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  EXPECT_TRUE(registry_.Beat("w0", session, {.draining = true}));
  EXPECT_EQ(StateOf("w0"), WorkerState::kDraining);
  WorkerRecord record = RecordOf("w1", {{"b", 0}});
  record.draining = true;
  Join(registry_, record);
  EXPECT_EQ(StateOf("w1"), WorkerState::kDraining);
}

class GpuRegistryTest : public WorkerRegistryTest {
 protected:
  static WorkerRecord GpuRecordOf(const std::string& name, const std::string& host,
                                  uint64_t process, uint64_t incarnation = 1) {
    WorkerRecord record = RecordOf(name, {{host, 0}, {host, 1}}, incarnation);
    record.execution_address = "at-" + name;
    record.gpus = {{{host, 0}, {"GPU-" + host, process}}};
    return record;
  }
};

TEST_F(GpuRegistryTest, AGpusProcessIsFoundAtItsWorker) {
  Join(registry_, GpuRecordOf("w0", "a", 7));
  const auto place = registry_.FindGpuProcess({"GPU-a", 7});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->worker, "w0");
  EXPECT_EQ(place->execution_address, "at-w0");
  EXPECT_FALSE(registry_.FindGpuProcess({"GPU-a", 8}).has_value());
  EXPECT_FALSE(registry_.FindGpuProcess({"GPU-b", 7}).has_value());
}

TEST_F(GpuRegistryTest, AHeartbeatTellsOfAnotherProcess) {
  const uint64_t session = Join(registry_, GpuRecordOf("w0", "a", 7));
  EXPECT_TRUE(registry_.Beat("w0", session, {.gpu_processes = {{"GPU-a", 7}}}));
  EXPECT_THAT(listener_.heard, ElementsAre("ready w0"));
  EXPECT_TRUE(registry_.Beat("w0", session, {}));
  EXPECT_FALSE(registry_.Get("w0")->gpus[0].has_process());
  EXPECT_TRUE(registry_.Beat("w0", session, {.gpu_processes = {{"GPU-x", 1}, {"GPU-a", 8}}}));
  EXPECT_THAT(listener_.heard,
              ElementsAre("ready w0", "lost GPU-a#7: worker w0: the process has ended"));
  EXPECT_TRUE(registry_.FindGpuProcess({"GPU-a", 8}).has_value());
}

TEST_F(GpuRegistryTest, NcclM2nIsThereOnceAllWorkersOfTheDevicesHaveIt) {
  const std::vector<DeviceId> devices = {{"a", 0}, {"b", 0}};
  EXPECT_EQ(registry_.WhyNoM2n(devices), "no live worker owns a.0");
  EXPECT_EQ(registry_.m2n_workers(), 0);
  WorkerRecord first = GpuRecordOf("w0", "a", 7);
  first.m2n = true;
  Join(registry_, first);
  const size_t only_first = registry_.m2n_workers();
  EXPECT_NE(only_first, 0);
  const uint64_t second = Join(registry_, GpuRecordOf("w1", "b", 7));
  EXPECT_EQ(registry_.WhyNoM2n(devices), "worker w1 does not have it");
  EXPECT_TRUE(registry_.Beat("w1", second, {.gpu_processes = {{"GPU-b", 7}}, .m2n = true}));
  EXPECT_EQ(registry_.WhyNoM2n(devices), "");
  const size_t both = registry_.m2n_workers();
  EXPECT_NE(both, only_first);
  EXPECT_TRUE(registry_.Beat("w1", second, {.gpu_processes = {{"GPU-b", 7}}, .m2n = true}));
  Join(registry_, first);  // another session
  EXPECT_EQ(registry_.m2n_workers(), both);
  registry_.SessionEnded("w1", second, /*left=*/false);
  EXPECT_EQ(registry_.m2n_workers(), only_first);
  EXPECT_EQ(registry_.WhyNoM2n(devices), "no live worker owns b.0");
}

TEST_F(GpuRegistryTest, ASecondSessionTellsOfAnotherProcess) {
  Join(registry_, GpuRecordOf("w0", "a", 7));
  Join(registry_, GpuRecordOf("w0", "a", 8));
  EXPECT_THAT(
      listener_.heard,
      ElementsAre("ready w0", "lost GPU-a#7: worker w0: the process has ended", "ready w0"));
}

TEST_F(GpuRegistryTest, ALostWorkersProcessesAreLostWithIt) {
  const uint64_t session = Join(registry_, GpuRecordOf("w0", "a", 7));
  registry_.SessionEnded("w0", session, /*left=*/false);
  EXPECT_THAT(listener_.heard, ElementsAre("ready w0", "lost w0: its session ended",
                                           "lost GPU-a#7: worker w0 is lost: its session ended"));
  EXPECT_FALSE(registry_.FindGpuProcess({"GPU-a", 7}).has_value());
}

TEST_F(GpuRegistryTest, AGpuHasOneWorker) {
  Join(registry_, GpuRecordOf("w0", "a", 7));
  WorkerRecord other = GpuRecordOf("w1", "b", 1);
  other.gpus[0].process.gpu = "GPU-a";
  EXPECT_THAT(registry_.Register(other).status(),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("worker w1: GPU GPU-a belongs to worker w0")));
}

TEST_F(GpuRegistryTest, AGpuThatIsNoneOfTheDevicesOrThereTwiceIsRefused) {
  WorkerRecord stranger = GpuRecordOf("w0", "a", 7);
  stranger.gpus[0].device = {"b", 0};
  EXPECT_THAT(registry_.Register(stranger).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("b.0 is not the worker's")));
  WorkerRecord twice = GpuRecordOf("w0", "a", 7);
  twice.gpus.push_back({{"a", 1}, {"GPU-a", 8}});
  EXPECT_THAT(registry_.Register(twice).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("GPU-a as device a.1 again")));
}

}  // namespace
}  // namespace crossmesh
