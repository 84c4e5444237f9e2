// Tasks of a worker with GPUs whose bytes come from host memory, or go there.

#include "worker/gpu/tasks/bridged_task_runner.h"

#include "common/base/check.h"
#include "common/plan/plan.h"
#include "common/plan/proof.h"
#include "common/plan/testing/tables.h"
#include "common/testing/send_signal.h"
#include "common/testing/status_matchers.h"
#include "worker/gpu/tasks/testing/bridged_workers.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kStorageBytes = 300'000;

DeviceRank RankOf(const TensorTable& tensors, const std::string& device) {
  const auto found = std::ranges::find(tensors.devices(), *ParseDevice(device));
  return static_cast<DeviceRank>(found - tensors.devices().begin());
}

struct FromToOptions {
  int64_t bytes = kStorageBytes;
  bool both_need = false;  // so they stay at the first device, in place
};

// All bytes of the first device go to the second.
Plan FromTo(const std::string& from, const std::string& to, const FromToOptions& options = {}) {
  auto tensors = std::make_shared<const TensorTable>(
      TableOf({{.shape = absl::StrCat("[", options.bytes, "]"),
                .source_mesh = absl::StrCat("x=1 on ", from),
                .source = "[-]",
                .destination_mesh = options.both_need ? absl::StrCat("x=2 on ", from, ",", to)
                                                      : absl::StrCat("x=1 on ", to),
                .destination = "[-]",
                .type = DataType::kU8}}));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  const DeviceRank root = RankOf(*tensors, from);
  Plan::Spec spec{.tensors = tensors,
                  .slicing = std::make_shared<const Slicing>(*std::move(slicing)),
                  .relays = {{.root = root,
                              .begin = 0,
                              .end = options.bytes,
                              .hop_count = 1,
                              .due = {.begin = 0, .end = DueTime::kParts}}},
                  .hops = {{.from = root, .to = RankOf(*tensors, to)}}};
  if (options.both_need) {
    spec.copies.push_back({.slice_class = 0, .device = root});
    spec.binding = BindingMode::kInPlace;
    spec.shared_storage = true;
  }
  auto plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  CHECK_OK(Prove(*plan));
  return *std::move(plan);
}

class BridgedTaskRunnerTest : public testing::Test {
 protected:
  // `faults` of all processes.
  void Open(Plan plan, const std::string& faults = "") {
    gpus().options.process.environment.push_back("CROSSMESH_STANDIN_FAULTS=" + faults);
    ASSERT_OK(workers_.Open());
    Use(std::move(plan));
  }
  void TearDown() override {
    gpus().RunUntil([&] { return workers_.bridge().bounce_bytes() == 0; });
    gpus().Stop();
    EXPECT_EQ(gpus().Violations(), "");
  }

  StandInGpus& gpus() { return workers_.gpus(); }
  static TaskKey KeyOf(uint32_t instance) { return {.operation = 1, .instance = instance}; }

  // Devices of hosts a and b belong to the first worker.
  void Use(Plan plan) {
    plan_ = std::make_unique<const Plan>(std::move(plan));
    std::vector<int32_t> worker_of_device;
    for (const DeviceId& device : plan_->tensors().devices()) {
      worker_of_device.push_back(device.host == "c" ? 1 : 0);
    }
    ASSERT_OK_AND_ASSIGN(memory_, MixedMemory::Create(*plan_, worker_of_device, workers_));
  }
  void Start(int32_t worker, uint32_t instance = 0) {
    StartAs(worker, memory_->SpecOf(worker, KeyOf(instance)));
  }
  void StartAs(int32_t worker, TaskSpec spec) {
    reports_[worker] = TaskReports();
    ASSERT_OK(workers_.runner(worker).Start(std::move(spec), reports_[worker]));
  }
  void StartBoth(uint32_t instance = 0) {
    for (const int32_t worker : {0, 1}) Start(worker, instance);
  }
  // Both, while the process of a.0 stands still, so that none of its copies is done.
  void StartWithoutProcess() {
    Signal(SIGSTOP);
    StartBoth();
    Settle();
    EXPECT_EQ(reports_[0].task, std::nullopt);
  }
  // The same, until all is there that is to be stored by a.0.
  void StartUntilStored() {
    StartWithoutProcess();
    gpus().RunUntil([&] {
      return reports_[1].task && workers_.bridge().MovedBytes(KeyOf(0)) == kStorageBytes;
    });
    Settle();
    EXPECT_EQ(reports_[0].task, std::nullopt);
  }
  GpuDevice& gpu() { return gpus()["a.0"]; }
  // Whether the process of a.0 has one mapped.
  bool HasBounceBuffer() {
    std::stringstream maps;
    maps << std::ifstream(absl::StrCat("/proc/", gpu().process().pid(), "/maps")).rdbuf();
    return absl::StrContains(maps.str(), "memfd:bounce_buffer");
  }
  void Signal(int signal) { SendSignal(gpu().process().pid(), signal); }
  void AwaitBoth() {
    gpus().RunUntil([&] { return reports_[0].task && reports_[1].task; });
  }
  void AwaitFirst() {
    gpus().RunUntil([&] { return reports_[0].task.has_value(); });
  }
  // All that can be done without the processes, which do not run.
  void Settle() {
    while (gpus().loop().RunOnce(absl::Milliseconds(5)) > 0) {
    }
  }
  void ExpectMoves(uint32_t instance) {
    StartBoth(instance);
    AwaitBoth();
    for (const TaskReports& reports : reports_) {
      EXPECT_OK(reports.task->status);
      for (const DeviceReport& device : reports.devices) {
        EXPECT_OK(device.status);
        EXPECT_EQ(device.bytes, kStorageBytes);
        EXPECT_OK(memory_->CheckDestination(device.device));
      }
    }
    EXPECT_OK(memory_->CheckUntouched());
  }
  // Of the only destination, which is the first worker's.
  absl::Status DeviceStatus() {
    EXPECT_EQ(reports_[0].devices.size(), 1);
    return reports_[0].devices.empty() ? absl::UnknownError("") : reports_[0].devices[0].status;
  }

  BridgedWorkers workers_;
  std::unique_ptr<const Plan> plan_;
  std::unique_ptr<MixedMemory> memory_;
  std::array<TaskReports, 2> reports_;
};

TEST_F(BridgedTaskRunnerTest, BytesMoveFromAGpuToHostMemoryAsOftenAsIsWanted) {
  Open(FromTo("a.0", "c.0"));
  for (uint32_t instance = 0; instance < 3; ++instance) ExpectMoves(instance);
}

TEST_F(BridgedTaskRunnerTest, AProcessKeepsABounceBufferUntilTheTaskIsOver) {
  Open(FromTo("a.0", "c.0"));
  Start(0);
  gpus().RunUntil([&] { return HasBounceBuffer(); });
  Start(1);
  AwaitBoth();
  EXPECT_OK(reports_[0].task->status);
  gpus().RunUntil([&] { return workers_.bridge().bounce_bytes() == 0; });
  EXPECT_FALSE(HasBounceBuffer());
}

TEST_F(BridgedTaskRunnerTest, ADigestIsThatOfHostMemory) {
  Open(FromTo("c.0", "a.0"));
  ExpectMoves(0);
  const Digest on_gpu = reports_[0].devices[0].digest;
  Use(FromTo("c.0", "a.1"));
  ExpectMoves(1);
  EXPECT_EQ(reports_[0].devices[0].digest, on_gpu);
  EXPECT_NE(on_gpu, Digest());
}

TEST_F(BridgedTaskRunnerTest, BytesMoveBetweenGpusOfAWorkerWithoutACommunicator) {
  Open(FromTo("a.0", "b.0"));
  ExpectMoves(0);
}

TEST_F(BridgedTaskRunnerTest, WhatIsReceivedInPlaceLeavesTheTilesThatAreThere) {
  Open(FromTo("a.0", "c.0", {.both_need = true}));
  ExpectMoves(0);
  Use(FromTo("c.0", "a.0", {.both_need = true}));
  ExpectMoves(1);
}

TEST_F(BridgedTaskRunnerTest, AProcessThatIsKilledWhileItLoadsEndsTheTaskEverywhere) {
  Open(FromTo("a.0", "c.0"));
  StartWithoutProcess();
  Signal(SIGKILL);
  AwaitBoth();
  EXPECT_THAT(reports_[0].task->status,
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr(absl::StrCat("device a.0 (", StandInUuid(0), ")"))));
  ASSERT_EQ(reports_[1].devices.size(), 1);
  EXPECT_THAT(reports_[1].devices[0].status, Not(IsOk()));
  gpus().RunUntil([&] { return gpu().state() == GpuDevice::State::kUp; });
  ExpectMoves(1);
}

TEST_F(BridgedTaskRunnerTest, AProcessThatIsKilledWhileItStoresFailsItsDevice) {
  Open(FromTo("c.0", "a.0"));
  StartUntilStored();
  Signal(SIGKILL);
  AwaitFirst();
  EXPECT_THAT(DeviceStatus(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("device a.0 (GPU-")));
  EXPECT_THAT(reports_[0].task->status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(reports_[0].devices[0].digest, Digest());
  gpus().RunUntil([&] { return gpu().state() == GpuDevice::State::kUp; });
  ExpectMoves(1);
}

TEST_F(BridgedTaskRunnerTest, AProcessThatIsReplacedInBetweenIsNotMissed) {
  Open(FromTo("c.0", "a.0"));
  Start(0);
  Settle();
  Signal(SIGKILL);
  gpus().AwaitReplacement(gpu());
  Start(1);
  AwaitBoth();
  EXPECT_OK(DeviceStatus());
  EXPECT_OK(memory_->CheckDestination(reports_[0].devices[0].device));
}

TEST_F(BridgedTaskRunnerTest, AHostThatIsLostEndsTheTask) {
  Open(FromTo("c.0", "a.0"));
  Start(0);
  Settle();
  workers_.fabric().Kill(workers_.address(1));
  AwaitFirst();
  EXPECT_THAT(DeviceStatus(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker w1 is lost")));
  EXPECT_THAT(reports_[0].task->lost_peers, ElementsAre("w1"));
}

TEST_F(BridgedTaskRunnerTest, AHostThatIsSaidToBeLostEndsTheTask) {
  Open(FromTo("a.0", "c.0"));
  TaskSpec spec = memory_->SpecOf(0, KeyOf(0));
  // What was sent is under way for so long: the other end takes nothing before it has the task.
  spec.stall_limit = absl::Seconds(1);
  StartAs(0, std::move(spec));
  workers_.bridge().PeerLost(KeyOf(0), "w1", absl::UnavailableError("no heartbeat"));
  AwaitFirst();
  EXPECT_THAT(reports_[0].task->lost_peers, ElementsAre("w1"));
}

TEST_F(BridgedTaskRunnerTest, ACancelledTaskEndsWhenNothingIsCopiedAnyMore) {
  Open(FromTo("a.0", "c.0"));
  StartWithoutProcess();
  workers_.bridge().Cancel(KeyOf(0), absl::CancelledError("enough"));
  Settle();
  EXPECT_EQ(reports_[0].task, std::nullopt);
  EXPECT_GT(workers_.bridge().bounce_bytes(), 0);
  Signal(SIGCONT);
  AwaitBoth();
  EXPECT_THAT(reports_[0].task->status, StatusIs(absl::StatusCode::kCancelled, "enough"));
}

TEST_F(BridgedTaskRunnerTest, ADestinationIsNotCompleteBeforeItIsOnTheGpu) {
  Open(FromTo("c.0", "a.0"));
  StartUntilStored();
  EXPECT_THAT(reports_[0].devices, IsEmpty());
  workers_.bridge().Cancel(KeyOf(0), absl::CancelledError("enough"));
  Signal(SIGCONT);
  AwaitFirst();
  EXPECT_THAT(DeviceStatus(), StatusIs(absl::StatusCode::kCancelled,
                                       AllOf(HasSubstr("device a.0"), HasSubstr("enough"))));
}

TEST_F(BridgedTaskRunnerTest, CopiesEndAtTheDeadline) {
  Open(FromTo("a.0", "c.0"));
  Signal(SIGSTOP);
  TaskSpec spec = memory_->SpecOf(0, KeyOf(0));
  spec.deadline = absl::Milliseconds(100);
  StartAs(0, std::move(spec));
  Start(1);
  gpus().RunUntil([&] { return reports_[1].task.has_value(); });
  Settle();
  EXPECT_EQ(reports_[0].task, std::nullopt);
  Signal(SIGCONT);
  AwaitFirst();
  EXPECT_THAT(reports_[0].task->status,
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("deadline of 100ms")));
}

TEST_F(BridgedTaskRunnerTest, BytesThatChangeOnTheWayToABounceBufferAreFound) {
  Open(FromTo("a.0", "c.0"), "corrupt_copy_at=1");
  StartBoth();
  AwaitBoth();
  EXPECT_THAT(reports_[0].task->status,
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("device a.0"), HasSubstr("expected the same hash"))));
  EXPECT_THAT(reports_[1].devices[0].status, Not(IsOk()));
}

TEST_F(BridgedTaskRunnerTest, BytesThatChangeOnTheWayFromABounceBufferAreFound) {
  Open(FromTo("c.0", "a.0"), "corrupt_copy_at=1");
  StartBoth();
  AwaitBoth();
  EXPECT_THAT(DeviceStatus(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("device a.0"), HasSubstr("bytes [64, 65600)"))));
}

TEST_F(BridgedTaskRunnerTest, BounceBuffersThatTakeTooMuchMemoryAreRefused) {
  Open(FromTo("c.0", "a.0", {.bytes = BridgedWorkers::kBounceBytesMax}));
  EXPECT_THAT(workers_.bridge().Start(memory_->SpecOf(0, KeyOf(0)), reports_[0]),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("device a.0"), HasSubstr("found 0 in use"))));
  Use(FromTo("c.0", "a.0"));
  ExpectMoves(1);
}

TEST_F(BridgedTaskRunnerTest, WhatCannotRunIsRefused) {
  Open(FromTo("c.0", "a.0"));
  std::byte lent[1] = {};
  TaskSpec spec = memory_->SpecOf(0, KeyOf(0));
  std::byte*& tile = spec.destinations[RankOf(plan_->tensors(), "a.0")].tensor[0];
  tile = lent;
  EXPECT_THAT(workers_.bridge().Start(spec, reports_[0]),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("memory of another kind")));
  tile = nullptr;
  EXPECT_THAT(workers_.bridge().Start(spec, reports_[0]),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("device a.0")));
  EXPECT_EQ(workers_.bridge().bounce_bytes(), 0);
  Start(0);
  EXPECT_THAT(workers_.bridge().Start(memory_->SpecOf(0, KeyOf(0)), reports_[0]),
              StatusIs(absl::StatusCode::kAlreadyExists));
  Start(1);
  AwaitBoth();
  EXPECT_OK(DeviceStatus());
}

}  // namespace
}  // namespace crossmesh
