#pragma once

#include "worker/executor/task_runner.h"

#include <cstdint>
#include <optional>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Gives each task to the runner for the way that its bytes go: from GPU to GPU over a communicator,
// or between host memory, on any devices. What is said about a task goes to both, of
// which one does not know it. Confined to their loop.
class TaskRouter final : public TaskRunner {
 public:
  // All must outlive it.
  TaskRouter(TaskRunner& on_gpus, TaskRunner& on_host) : on_gpus_(on_gpus), on_host_(on_host) {}

  absl::Status Start(TaskSpec spec, TaskObserver& observer) override;
  void Cancel(const TaskKey& key, absl::Status why) override;
  void Refuse(const TaskKey& key) override;
  void RaiseEpoch(uint64_t epoch) override;
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override;
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override;

 private:
  TaskRunner& on_gpus_;
  TaskRunner& on_host_;
};

}  // namespace crossmesh
