#include "worker/gpu/tasks/task_router.h"

#include "common/testing/status_matchers.h"

#include <optional>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

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
  static TaskSpec SpecOf(bool has_communicator) {
    TaskSpec spec;
    spec.key = {.operation = 1};
    if (has_communicator) spec.communicators.emplace_back();
    return spec;
  }

  KnowingRunner on_gpus_;
  KnowingRunner on_host_;
  TaskRouter router_{on_gpus_, on_host_};
  NoObserver observer_;
};

TEST_F(TaskRouterTest, ACommunicatorDecides) {
  EXPECT_OK(router_.Start(SpecOf(/*has_communicator=*/true), observer_));
  EXPECT_TRUE(on_gpus_.started.has_value());
  EXPECT_FALSE(on_host_.started.has_value());
  EXPECT_OK(router_.Start(SpecOf(/*has_communicator=*/false), observer_));
  EXPECT_TRUE(on_host_.started.has_value());
}

TEST_F(TaskRouterTest, WhatIsSaidOfATaskReachesItsRunner) {
  const TaskKey key = {.operation = 1};
  EXPECT_EQ(router_.MovedBytes(key), std::nullopt);
  EXPECT_OK(router_.Start(SpecOf(/*has_communicator=*/false), observer_));
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
