// Tasks of a worker with three GPUs, each in its process: bytes go from a.0 to b.0, and on to b.1.

#include "worker/gpu/tasks/gpu_task_runner.h"

#include "common/base/unique_fd.h"
#include "common/plan/worker_part.h"
#include "common/testing/send_signal.h"
#include "common/testing/status_matchers.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/time_codec.h"
#include "tests/standin/plain_memory.h"
#include "tests/standin/stand_in.h"
#include "tests/standin/stand_in_gpu.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/compiler/testing/small_plans.h"
#include "worker/gpu/devices/testing/stand_in_gpus.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"
#include "worker/gpu/tasks/testing/bridged_workers.h"
#include "worker/memory/lent_allocation.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kBytes = 300'000;

std::string Pattern(int version) {
  std::string bytes(kBytes, '\0');
  for (int64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251 + version);
  return bytes;
}

// Host memory, where a task has moved one byte as soon as it is started.
class HostRunner final : public TaskRunner {
 public:
  absl::Status Start(TaskSpec spec, TaskObserver& /*observer*/) override {
    started = spec.key;
    return absl::OkStatus();
  }
  void Cancel(const TaskKey& /*key*/, absl::Status /*why*/) override { ++told; }
  void Refuse(const TaskKey& /*key*/) override { ++told; }
  void RaiseEpoch(uint64_t /*epoch*/) override { ++told; }
  void PeerLost(const TaskKey& /*key*/, absl::string_view /*worker*/,
                absl::Status /*why*/) override {
    ++told;
  }
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override {
    return started == key ? std::optional<int64_t>(1) : std::nullopt;
  }

  std::optional<TaskKey> started;
  int told = 0;
};

class GpuTaskRunnerTest : public testing::Test {
 protected:
  // `faults` of all processes.
  void Open(const std::string& faults = "") {
    gpus_.options.process.environment.push_back("CROSSMESH_STANDIN_FAULTS=" + faults);
    ASSERT_OK(gpus_.Open());
    runner_ = std::make_unique<GpuTaskRunner>(gpus_.loop(), gpus_.devices(), host_);
    ASSERT_OK_AND_ASSIGN(auto parts, CutParts(plan_, {plan_.tensors().devices()}));
    ASSERT_OK_AND_ASSIGN(
        part_, PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts.front()))));
    for (const char* device : {"a.0", "b.0", "b.1"}) {
      ASSERT_OK_AND_ASSIGN(arenas_.emplace_back(), gpus_.MakeArena(device, kBytes));
    }
  }
  void TearDown() override {
    gpus_.Stop();
    EXPECT_EQ(gpus_.Violations(), "");
  }

  BoundTiles TilesOf(DeviceRank device) const {
    return {.tensor = {arenas_[device]->bytes().data()}};
  }
  TaskSpec SpecOf(uint32_t instance, const CommunicatorKey& communicator) const {
    TaskSpec spec;
    spec.key = {.operation = 1, .epoch = 1, .plan = 1, .instance = instance};
    spec.part = part_;
    spec.sources[0] = TilesOf(0);
    spec.destinations[1] = TilesOf(1);
    spec.destinations[2] = TilesOf(2);
    spec.communicators = {{.key = communicator, .devices = {0, 1, 2}}};
    spec.stall_limit = absl::Seconds(30);
    return spec;
  }
  // What comes of a task; `meanwhile` is called when it was started.
  TaskReports Run(TaskSpec spec, absl::FunctionRef<void()> meanwhile = [] {}) {
    TaskReports reports;
    EXPECT_OK(runner_->Start(std::move(spec), reports));
    EXPECT_FALSE(reports.task.has_value());
    meanwhile();
    gpus_.RunUntil([&] { return reports.task.has_value(); });
    return reports;
  }
  void ExpectMoves(uint32_t instance, const CommunicatorKey& communicator) {
    StandInGpus::Write(*arenas_[0], Pattern(static_cast<int>(instance)));
    const TaskReports reports = Run(SpecOf(instance, communicator));
    EXPECT_OK(reports.task->status);
    EXPECT_THAT(reports.devices, AllOf(SizeIs(2), Each(Field(&DeviceReport::status, IsOk())),
                                       Each(Field(&DeviceReport::bytes, kBytes))));
    EXPECT_EQ(reports.task->devices.size(), 2);
    EXPECT_THAT(reports.task->broken_devices, IsEmpty());
    for (const DeviceRank device : {1, 2}) {
      EXPECT_TRUE(StandInGpus::Read(*arenas_[device]) == Pattern(static_cast<int>(instance)));
    }
  }

  // Until the process has begun a task that was started: it is posted, sent, and sent again with
  // its part by the time of three answers.
  void AwaitBegun(const std::string& device) {
    for (int i = 0; i < 3; ++i) EXPECT_OK(gpus_.Call(gpus_[device], PingRequest()));
  }

  // At the others than a lost process it goes with the task, or by this.
  void StopCommunicator(const CommunicatorKey& communicator,
                        const std::vector<std::string>& devices) {
    for (const std::string& device : devices) {
      EXPECT_THAT(gpus_.Call(gpus_[device], StopCommunicatorRequest(communicator, "enough")),
                  AnyOf(IsOk(), StatusIs(absl::StatusCode::kNotFound)));
    }
  }

  const Plan plan_ = Made(ThroughTwoHops(kBytes));
  StandInGpus gpus_{{"a.0", "b.0", "b.1"}};
  HostRunner host_;
  std::unique_ptr<GpuTaskRunner> runner_;
  std::shared_ptr<const PreparedPart> part_;
  std::vector<std::shared_ptr<Arena>> arenas_;
};

TEST_F(GpuTaskRunnerTest, BytesMoveAsOftenAsIsWanted) {
  Open();
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  for (uint32_t instance = 0; instance < 3; ++instance) ExpectMoves(instance, communicator);
}

TEST_F(GpuTaskRunnerTest, ATaskWaitsForItsMemory) {
  Open();
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  StandInGpus::Write(*arenas_[0], Pattern(0));
  const StorageKey key = {.name = "new", .device = *ParseDevice("b.1")};
  ASSERT_OK_AND_ASSIGN(arenas_[2], gpus_.devices().MakeArena(key, ByteCount(kBytes)));
  EXPECT_THAT(Run(SpecOf(0, communicator)).devices, Each(Field(&DeviceReport::status, IsOk())));
  EXPECT_TRUE(StandInGpus::Read(*arenas_[2]) == Pattern(0));
}

TEST_F(GpuTaskRunnerTest, ALostProcessEndsItsDevicesByNameAndTheOthersShare) {
  Open("stall_at=2");
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  GpuDevice& gpu = gpus_["b.0"];
  const TaskKey key = SpecOf(0, communicator).key;
  const TaskReports reports = Run(SpecOf(0, communicator), [&] {
    AwaitBegun("b.0");
    SendSignal(gpu.process().pid(), SIGKILL);
  });
  EXPECT_THAT(reports.task->status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("device b.0 (" + StandInUuid(1))));
  EXPECT_THAT(reports.task->broken_devices, testing::Contains(1));
  EXPECT_THAT(
      reports.devices,
      AllOf(SizeIs(2), Each(Field(&DeviceReport::status, StatusIs(absl::StatusCode::kUnavailable,
                                                                  HasSubstr("device b.0"))))));
  EXPECT_EQ(host_.told, 0);
  gpus_.RunUntil([&] { return !runner_->MovedBytes(key).has_value(); });

  gpus_.RunUntil([&] { return gpu.state() == GpuDevice::State::kUp; });
  StopCommunicator(communicator, {"a.0", "b.1"});
}

TEST_F(GpuTaskRunnerTest, AfterAStallTheCommunicatorIsGoneAndTheNextTaskWorks) {
  Open("stall_at=1");  // at every rank, in the first task
  ASSERT_OK_AND_ASSIGN(CommunicatorKey communicator, gpus_.MakeCommunicator());
  TaskSpec spec = SpecOf(0, communicator);
  spec.stall_limit = absl::Milliseconds(300);
  EXPECT_THAT(Run(std::move(spec)).task->status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stalled")));
  StopCommunicator(communicator, {"a.0", "b.0", "b.1"});
  ASSERT_OK_AND_ASSIGN(communicator, gpus_.MakeCommunicator());
  ExpectMoves(1, communicator);
}

TEST_F(GpuTaskRunnerTest, AProcessThatLosesItsGpuIsReplaced) {
  Open("illegal_address_at=1");
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  const RankName before = gpus_["a.0"].rank();
  // By the report of the process, or by its end, whichever is here first.
  EXPECT_THAT(Run(SpecOf(0, communicator)).task->status.ToString(),
              HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  gpus_.RunUntil([&] { return gpus_["a.0"].rank() != before; });
  gpus_.RunUntil([&] { return gpus_["a.0"].state() == GpuDevice::State::kUp; });
}

TEST_F(GpuTaskRunnerTest, ANewProcessGetsPartsAnew) {
  Open();
  ASSERT_OK_AND_ASSIGN(CommunicatorKey communicator, gpus_.MakeCommunicator());
  ExpectMoves(0, communicator);
  for (const char* device : {"a.0", "b.0", "b.1"}) {
    SendSignal(gpus_[device].process().pid(), SIGKILL);
    gpus_.AwaitReplacement(gpus_[device]);
  }
  ASSERT_OK_AND_ASSIGN(communicator, gpus_.MakeCommunicator());
  ExpectMoves(1, communicator);
}

TEST_F(GpuTaskRunnerTest, ACancelledTaskEndsWithItsCause) {
  Open("stall_at=2");
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  const TaskSpec spec = SpecOf(0, communicator);
  const TaskReports reports = Run(spec, [&] {
    AwaitBegun("b.1");
    runner_->Cancel(spec.key, absl::CancelledError("enough"));
  });
  EXPECT_THAT(reports.task->status, StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(reports.devices, SizeIs(2));
}

TEST_F(GpuTaskRunnerTest, ALostPeerEndsTheTask) {
  Open("stall_at=2");
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  TaskSpec spec = SpecOf(0, communicator);
  spec.peers.push_back({.worker = "w2", .address = ""});
  const TaskKey key = spec.key;
  const TaskReports reports = Run(std::move(spec), [&] {
    runner_->PeerLost(key, "w3", absl::UnavailableError("of another task"));
    runner_->PeerLost(key, "w2", absl::UnavailableError("no heartbeat"));
  });
  EXPECT_THAT(reports.task->status, StatusIs(absl::StatusCode::kUnavailable,
                                             HasSubstr("worker w2 is lost: no heartbeat")));
  EXPECT_THAT(reports.task->lost_peers, testing::ElementsAre("w2"));
}

TEST_F(GpuTaskRunnerTest, ACommunicatorThatIsNotThereIsToldByDevice) {
  Open();
  ASSERT_OK_AND_ASSIGN(CommunicatorKey communicator, gpus_.MakeCommunicator());
  communicator.purpose = "another";
  const TaskReports reports = Run(SpecOf(0, communicator));
  EXPECT_THAT(reports.task->status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("another")));
  EXPECT_THAT(reports.task->broken_devices, SizeIs(3));
  EXPECT_THAT(reports.devices, SizeIs(2));
}

TEST_F(GpuTaskRunnerTest, WhatCannotRunIsRefused) {
  Open();
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  TaskReports reports;
  TaskSpec spec = SpecOf(0, communicator);
  spec.communicators[0].devices = {0, 1};
  EXPECT_THAT(runner_->Start(spec, reports),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("device b.1: expected a rank in one of 1 communicators")));
  spec = SpecOf(0, communicator);
  EXPECT_OK(runner_->Start(spec, reports));
  EXPECT_THAT(runner_->Start(spec, reports), StatusIs(absl::StatusCode::kAlreadyExists));
  gpus_.RunUntil([&] { return reports.task.has_value(); });
  EXPECT_OK(reports.task->status);
}

TEST_F(GpuTaskRunnerTest, ATaskThatIsCancelledBeforeItsProcessKnowsItDoesNotBegin) {
  Open();
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  const TaskSpec spec = SpecOf(0, communicator);
  const TaskReports reports = Run(spec, [&] {
    // It is posted by then, and sent; the answer, that its part is needed, is not here yet.
    gpus_.loop().RunOnce(absl::ZeroDuration());
    runner_->Cancel(spec.key, absl::CancelledError("enough"));
  });
  EXPECT_THAT(reports.devices,
              Each(Field(&DeviceReport::status, StatusIs(absl::StatusCode::kCancelled))));
  ExpectMoves(1, communicator);
}

TEST_F(GpuTaskRunnerTest, ATaskWithoutACommunicatorIsOneOfHostMemory) {
  Open();
  TaskReports reports;
  TaskSpec spec;
  spec.key = {.operation = 1};
  EXPECT_EQ(runner_->MovedBytes(spec.key), std::nullopt);
  EXPECT_OK(runner_->Start(spec, reports));
  EXPECT_EQ(host_.started, spec.key);
  EXPECT_EQ(runner_->MovedBytes(spec.key), 1);
  runner_->Cancel(spec.key, absl::CancelledError(""));
  runner_->Refuse(spec.key);
  runner_->RaiseEpoch(2);
  runner_->PeerLost(spec.key, "w2", absl::UnavailableError(""));
  EXPECT_EQ(host_.told, 4);
}

// Both ends have their tiles in memory that user processes lend, in the midst of allocations.
class LentTilesTest : public GpuTaskRunnerTest {
 protected:
  static constexpr int64_t kAllocation = 2 << 20;
  static constexpr int64_t kOffset = 123'456;

  // A storage of `bytes`, of which the first `piece` are bound.
  std::shared_ptr<Arena> Bind(const std::string& device, int64_t piece) {
    const auto own = gpus_.MakeArena(device, kAllocation);
    UniqueFd copy;
    (*own)->device_memory()->WhenMade([&](const DeviceMemory::Made& made) {
      copy.Reset(fcntl(made->get(), F_DUPFD_CLOEXEC, 0));
    });
    return BindTo({.descriptor = std::move(copy)}, device, piece);
  }
  std::shared_ptr<Arena> BindTo(LentAllocation lent, const std::string& device, int64_t piece) {
    const StorageKey key = {.name = "lent", .device = *ParseDevice(device)};
    lent_.push_back(*gpus_.devices().LendArena(key, ByteCount(kAllocation), std::move(lent)));
    gpus_.RunUntil([&] { return *lent_.back()->device_memory()->is_made(); });
    return *gpus_.devices().BindArena(
        key, ByteCount(kBytes),
        {{.offset = 0, .bytes = piece, .allocation = lent_.back(), .allocation_offset = kOffset}});
  }

  std::vector<std::shared_ptr<Arena>> lent_;
};

TEST_F(LentTilesTest, BytesMoveBetweenPiecesOfLentMemory) {
  Open();
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  arenas_[0] = Bind("a.0", kBytes);
  arenas_[2] = Bind("b.1", kBytes);
  StandInGpus::Write(*lent_[0], std::string(kOffset, '\0') + Pattern(1));
  EXPECT_OK(Run(SpecOf(1, communicator)).task->status);
  EXPECT_TRUE(StandInGpus::Read(*lent_[1]).substr(kOffset, kBytes) == Pattern(1));
  EXPECT_TRUE(StandInGpus::Read(*arenas_[1]) == Pattern(1));
}

TEST_F(LentTilesTest, BytesMoveFromMemoryThatWasLentByAHandle) {
  Open();
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  ASSERT_OK_AND_ASSIGN(const auto stand_in, StandIn::Load());
  ASSERT_OK_AND_ASSIGN(const auto gpu, StandInGpu::Create(*stand_in));
  ASSERT_OK_AND_ASSIGN(const auto memory, PlainMemory::Create(*stand_in, kAllocation));
  const std::string pattern = Pattern(1);
  std::ranges::copy(std::as_bytes(std::span(pattern)), memory->bytes().begin() + kOffset);
  arenas_[0] = BindTo({.ipc_handle = memory->ipc_handle()}, "a.0", kBytes);
  EXPECT_OK(Run(SpecOf(1, communicator)).task->status);
  EXPECT_TRUE(StandInGpus::Read(*arenas_[1]) == Pattern(1));
}

TEST_F(LentTilesTest, ATileThatItsPieceDoesNotHoldIsRefused) {
  Open();
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  arenas_[2] = Bind("b.1", kBytes - 1);
  EXPECT_THAT(
      Run(SpecOf(1, communicator)).task->status,
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("device b.1"),
                     HasSubstr("holds the 300000 bytes of a tile, found one with 299999"))));
}

// What a worker does not ask for.
TEST_F(GpuTaskRunnerTest, AProcessRefusesWhatCannotRun) {
  Open();
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  ExpectMoves(0, communicator);  // so that the process has its part
  ASSERT_OK_AND_ASSIGN(const auto parts, CutParts(plan_, {{{"a", 0}}, {{"b", 0}}, {{"b", 1}}}));
  ASSERT_OK_AND_ASSIGN(const auto tile, gpus_["b.0"].arenas().Find(arenas_[1]->bytes().data()));
  v1::GpuRequest request;
  v1::GpuRequest::RunTask& task = *request.mutable_run_task();
  *task.mutable_key() = ToProto(SpecOf(1, communicator).key);
  task.set_part_digest(parts[1].digest().ToString());
  *task.mutable_destinations() = ToProto(std::vector<TilePlace>{tile.place});
  *task.mutable_communicator() = ToProto(communicator);
  *task.mutable_deadline() = ToProto(absl::Seconds(60));
  *task.mutable_stall_limit() = ToProto(absl::Seconds(30));
  for (const DeviceRank device : {0, 1}) task.add_devices(device);
  EXPECT_THAT(gpus_.Call(gpus_["b.0"], request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("run_task.devices of a GPU message: expected 3, as of the "
                                 "communicator, found 2")));
  task.add_devices(2);
  task.mutable_destinations()->set_offset_bytes(0, 64);
  EXPECT_THAT(gpus_.Call(gpus_["b.0"], request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected 300000 bytes from 64 on in arena")));
}

}  // namespace
}  // namespace crossmesh
