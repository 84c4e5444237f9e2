// Tasks of a worker with three GPUs, each in its process: bytes go from a.0 to b.0, and on to b.1.

#include "worker/gpu/tasks/gpu_task_runner.h"

#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/compiler/testing/small_plans.h"
#include "worker/gpu/devices/testing/stand_in_gpus.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
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

class Reports final : public TaskObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) override {
    EXPECT_FALSE(task.has_value());
    devices.push_back(report);
  }
  void OnTaskDone(const TaskReport& report) override { task = report; }

  std::vector<DeviceReport> devices;
  std::optional<TaskReport> task;
};

class GpuTaskRunnerTest : public testing::Test {
 protected:
  // `faults` of all processes.
  void Open(const std::string& faults = "") {
    gpus_.options.process.environment.push_back("CROSSMESH_STANDIN_FAULTS=" + faults);
    ASSERT_OK(gpus_.Open());
    runner_ = std::make_unique<GpuTaskRunner>(gpus_.loop(), gpus_.devices());
    const Plan plan = Made(ThroughTwoHops(kBytes));
    ASSERT_OK_AND_ASSIGN(auto parts, CutParts(plan, {plan.tensors().devices()}));
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
  Reports Run(TaskSpec spec, absl::FunctionRef<void()> meanwhile = [] {}) {
    Reports reports;
    EXPECT_OK(runner_->Start(std::move(spec), reports));
    EXPECT_FALSE(reports.task.has_value());
    meanwhile();
    gpus_.RunUntil([&] { return reports.task.has_value(); });
    return reports;
  }
  void ExpectMoves(uint32_t instance, const CommunicatorKey& communicator) {
    StandInGpus::Write(*arenas_[0], Pattern(static_cast<int>(instance)));
    const Reports reports = Run(SpecOf(instance, communicator));
    EXPECT_OK(reports.task->status);
    EXPECT_THAT(reports.devices, AllOf(SizeIs(2), Each(Field(&DeviceReport::status, IsOk())),
                                       Each(Field(&DeviceReport::bytes, kBytes))));
    EXPECT_EQ(reports.task->devices.size(), 2);
    EXPECT_THAT(reports.task->broken_devices, IsEmpty());
    for (const DeviceRank device : {1, 2}) {
      EXPECT_TRUE(StandInGpus::Read(*arenas_[device]) == Pattern(static_cast<int>(instance)));
    }
  }

  StandInGpus gpus_{{"a.0", "b.0", "b.1"}};
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
  const Reports reports = Run(SpecOf(0, communicator), [&] {
    gpus_.RunUntil([&] { return gpu.MovedBytes(key).has_value(); });
    kill(gpu.process().pid(), SIGKILL);
  });
  EXPECT_THAT(reports.task->status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("device b.0 (" + StandInUuid(1))));
  EXPECT_THAT(reports.task->broken_devices, testing::Contains(1));
  EXPECT_THAT(
      reports.devices,
      AllOf(SizeIs(2), Each(Field(&DeviceReport::status, StatusIs(absl::StatusCode::kUnavailable,
                                                                  HasSubstr("device b.0"))))));
  gpus_.RunUntil([&] { return !runner_->MovedBytes(key).has_value(); });

  gpus_.RunUntil([&] { return gpu.state() == GpuDevice::State::kUp; });
  // At the others it goes with the task, or by this.
  for (const char* device : {"a.0", "b.1"}) {
    EXPECT_THAT(gpus_.Call(gpus_[device],
                           StopCommunicatorRequest(communicator, absl::CancelledError("enough"))),
                AnyOf(IsOk(), StatusIs(absl::StatusCode::kNotFound)));
  }
}

TEST_F(GpuTaskRunnerTest, ANewProcessGetsPartsAnew) {
  Open();
  ASSERT_OK_AND_ASSIGN(CommunicatorKey communicator, gpus_.MakeCommunicator());
  ExpectMoves(0, communicator);
  for (const char* device : {"a.0", "b.0", "b.1"}) {
    kill(gpus_[device].process().pid(), SIGKILL);
    gpus_.AwaitReplacement(gpus_[device]);
  }
  ASSERT_OK_AND_ASSIGN(communicator, gpus_.MakeCommunicator());
  ExpectMoves(1, communicator);
}

TEST_F(GpuTaskRunnerTest, ACancelledTaskEndsWithItsCause) {
  Open("stall_at=2");
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  const TaskSpec spec = SpecOf(0, communicator);
  const Reports reports = Run(spec, [&] {
    gpus_.RunUntil([&] { return gpus_["b.1"].MovedBytes(spec.key).has_value(); });
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
  const Reports reports = Run(std::move(spec), [&] {
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
  const Reports reports = Run(SpecOf(0, communicator));
  EXPECT_THAT(reports.task->status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("another")));
  EXPECT_THAT(reports.task->broken_devices, SizeIs(3));
  EXPECT_THAT(reports.devices, SizeIs(2));
}

TEST_F(GpuTaskRunnerTest, WhatCannotRunIsRefused) {
  Open();
  ASSERT_OK_AND_ASSIGN(const CommunicatorKey communicator, gpus_.MakeCommunicator());
  Reports reports;
  TaskSpec spec = SpecOf(0, communicator);
  spec.communicators[0].devices = {0, 1};
  EXPECT_THAT(runner_->Start(spec, reports),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("device b.1: expected a rank in one of 1 communicators")));
  spec.communicators.clear();
  EXPECT_THAT(runner_->Start(spec, reports),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("in one of 0 communicators")));
  spec = SpecOf(0, communicator);
  EXPECT_OK(runner_->Start(spec, reports));
  EXPECT_THAT(runner_->Start(spec, reports), StatusIs(absl::StatusCode::kAlreadyExists));
  gpus_.RunUntil([&] { return reports.task.has_value(); });
  EXPECT_OK(reports.task->status);
}

}  // namespace
}  // namespace crossmesh
