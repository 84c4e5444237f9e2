#pragma once

#include "worker/executor/task.h"
#include "worker/gpu/communicators/communicator.h"

#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

class GpuBinding;

// What made the communicators that tasks use.
class CommunicatorOwner {
 public:
  virtual ~CommunicatorOwner() = default;

  // A task over it failed, and what is on the streams ends only with the communicator: to be
  // stopped, and GpuExecutor::OnCommunicatorChange called with what becomes of it. The executor
  // calls nothing of the communicator from now on. Called on the loop, never from inside a call of
  // the executor.
  virtual void StopCommunicator(const Communicator& communicator, const absl::Status& why) = 0;
};

// One run of a compiled part, as one rank of a communicator.
struct GpuTaskSpec {
  TaskKey key;
  std::shared_ptr<GpuBinding> binding;
  // Idle, and for this task only until it is reported. The executor's staging is registered with
  // it.
  Communicator* communicator = nullptr;
  CommunicatorOwner* owner = nullptr;           // of the communicator
  std::vector<int> ranks;                       // in the communicator, by DeviceRank
  absl::Duration deadline = absl::Seconds(60);  // from Start
  absl::Duration stall_limit = absl::Seconds(5);
};

}  // namespace crossmesh
