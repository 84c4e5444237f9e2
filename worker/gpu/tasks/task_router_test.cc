#include "worker/gpu/tasks/task_router.h"

#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/devices/stand_in_gpus.h"
#include "worker/gpu/program/testing/small_plans.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// Knows each task that it was given, and has moved one byte of it.
class KnowingRunner final : public TaskRunner {
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

class NoObserver final : public TaskObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& /*report*/) override {}
  void OnTaskDone(const TaskReport& /*report*/) override {}
};

class TaskRouterTest : public testing::Test {
 protected:
  // A task of these devices, of a plan from a.0 to b.0 and b.1.
  static TaskSpec SpecOf(const std::vector<std::string>& devices) {
    const Plan plan = Made(ThroughTwoHops(1000));
    std::vector<DeviceId> ours;
    std::vector<DeviceId> others;
    for (const DeviceId& device : plan.tensors().devices()) {
      const bool is_ours = std::ranges::find(devices, ToString(device)) != devices.end();
      (is_ours ? ours : others).push_back(device);
    }
    TaskSpec spec;
    spec.key = {.operation = 1};
    auto parts = CutParts(plan, {ours, others});
    spec.part =
        *PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts->front())));
    return spec;
  }

  // Processes are not started.
  const RealClock clock_;
  NullWorkerMetrics metrics_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_, {});
  std::unique_ptr<GpuDevices> gpus_ = *GpuDevices::Create(
      *loop_, clock_, {.gpus = {*ParseGpuName("b.0=GPU-0"), *ParseGpuName("b.1=GPU-1")}}, metrics_);
  KnowingRunner on_gpus_;
  KnowingRunner on_host_;
  TaskRouter router_{*gpus_, on_gpus_, on_host_};
  NoObserver observer_;
};

TEST_F(TaskRouterTest, TheKindOfDevicesDecides) {
  EXPECT_OK(router_.Start(SpecOf({"b.0", "b.1"}), observer_));
  EXPECT_TRUE(on_gpus_.started.has_value());
  EXPECT_FALSE(on_host_.started.has_value());
  EXPECT_OK(router_.Start(SpecOf({"a.0"}), observer_));
  EXPECT_TRUE(on_host_.started.has_value());
}

TEST_F(TaskRouterTest, BothKindsInOnePartAreRefused) {
  EXPECT_THAT(router_.Start(SpecOf({"a.0", "b.1"}), observer_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("found b.1, a GPU, and a.0, host memory")));
}

TEST_F(TaskRouterTest, WhatIsSaidOfATaskReachesItsRunner) {
  const TaskKey key = {.operation = 1};
  EXPECT_EQ(router_.MovedBytes(key), std::nullopt);
  EXPECT_OK(router_.Start(SpecOf({"a.0"}), observer_));
  EXPECT_EQ(router_.MovedBytes(key), 1);
  router_.Cancel(key, absl::CancelledError(""));
  router_.Refuse(key);
  router_.RaiseEpoch(2);
  router_.PeerLost(key, "w2", absl::UnavailableError(""));
  EXPECT_EQ(on_host_.told, 4);
  EXPECT_EQ(on_gpus_.told, 4);
}

}  // namespace
}  // namespace crossmesh
