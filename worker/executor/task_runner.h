#pragma once

#include "worker/executor/task.h"

#include <cstdint>
#include <optional>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Runs tasks: parts of plans, bound to memory. How it does so depends on the devices of the part.
// Confined to its loop.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;

  // AlreadyExists when a task of this key runs or has run recently; InvalidArgument when bindings
  // do not cover the part's devices (the device and tensor are named), or what else the runner
  // needs is not given or bad. `observer` must outlive the task.
  virtual absl::Status Start(TaskSpec spec, TaskObserver& observer) = 0;
  // Ends the task with `why` as the status of every device not complete yet. Does nothing when the
  // task is not known.
  virtual void Cancel(const TaskKey& key, absl::Status why) = 0;
  // The task will not be started here: what peers have sent for it, and still send, is dropped, so
  // that they can end. Does nothing when the task runs.
  virtual void Refuse(const TaskKey& key) = 0;
  // The same for all tasks of older epochs that do not run: they will not be started.
  virtual void RaiseEpoch(uint64_t epoch) = 0;
  // Another worker, or the controller, has found that a worker is gone or takes no part in this
  // task: the task gives it up.
  // Does nothing when the task is not known.
  virtual void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) = 0;
  // Bytes moved so far by a running task, for progress; nothing when it is not known.
  virtual std::optional<int64_t> MovedBytes(const TaskKey& key) const = 0;
};

}  // namespace crossmesh
