#pragma once

#include "worker/executor/task_runner.h"

namespace crossmesh {

// Runs tasks in host memory, whose sources may be filled only while they run
// (TaskSpec::awaited_sources). Confined to its loop.
class HostTaskRunner : public TaskRunner {
 public:
  // The source tiles of an awaited device are filled, and may be read from now on. Does nothing
  // when the task is not known.
  virtual void SourceHere(const TaskKey& key, DeviceRank device) = 0;
};

}  // namespace crossmesh
