#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

class BridgedTaskRunner;
class Clock;
class DataPlane;
class EventLoop;
class GpuTaskRunner;
class TaskRouter;
class TaskTable;
class WorkerDevices;
class WorkerMetrics;

// The tasks of a worker: their table, and what runs them on each way that their bytes may go.
// Thread-compatible; destroyed when the loops have stopped, and after the data plane.
class WorkerTasks {
 public:
  struct Options {
    std::string worker;
    std::string state_folder;  // as WorkerOptions says
  };
  // All outlive it, but for the data plane.
  struct Ports {
    EventLoop& control;
    EventLoop& data;
    WorkerDevices& devices;
    DataPlane& data_plane;
    const Clock& clock;
    WorkerMetrics& metrics;
  };

  WorkerTasks(Options options, const Ports& ports);
  ~WorkerTasks();

  // Once the devices are open. What EpochFence::Open says.
  absl::Status Open();
  // Takes no more, waits up to `drain_timeout` until what runs has ended and is acknowledged, and
  // cancels the rest.
  void Finish(absl::Duration drain_timeout);

  TaskTable& table() { return *table_; }

 private:
  const Options options_;
  const Ports ports_;
  std::unique_ptr<BridgedTaskRunner> bridge_;  // has memory that the executor uses
  std::unique_ptr<TaskTable> table_;
  std::unique_ptr<GpuTaskRunner> gpu_runner_;
  std::unique_ptr<TaskRouter> router_;
};

}  // namespace crossmesh
