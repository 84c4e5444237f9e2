#pragma once

#include "common/base/clock.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/worker_options.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class ControlServices;
class ControllerSession;
class DataPlane;
class EventLoop;
class StorageTable;
class WorkerDevices;
class WorkerMetrics;

// A whole worker: devices, their memory, the data plane, the executor, the processes of its GPUs,
// its gRPC server and its session with the controller. The daemon is one; a process that embeds one
// lends its own memory with Adopt. Thread-compatible; the owner's thread must be none of the
// worker's.
//
// Threads: "control" has the tasks and the session, "data" the executor, the transport and what is
// said to GPUs' processes, "memory" gives arenas back to the system; gRPC and the metrics' server
// have their own and bring everything to the first two. Each probe of a link has its own while it
// lasts.
class Worker {
 public:
  // Listens, joins and serves, once each GPU is up or given up: those of a host without a driver
  // are left out. InvalidArgument: what an option lacks; FailedPrecondition: an address is in use,
  // or no device is left, with the reason; Unavailable: no transport for the interfaces; what
  // EpochFence::Open says.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(WorkerOptions options);

  // As Stop(0).
  ~Worker();

  // Takes no new task, waits up to `drain_timeout` until what runs has ended and is acknowledged,
  // cancels the rest, leaves the controller and joins all threads. Repeatable.
  void Stop(absl::Duration drain_timeout);

  const std::string& name() const { return options_.name; }
  // Those that it has: without GPUs that are not there.
  const std::vector<DeviceId>& devices() const;
  // With the ports that were bound.
  const std::string& execution_address() const;
  std::string metrics_address() const;  // empty: none

  // The storages; thread-safe. An embedding process lends its memory by Adopt.
  StorageTable& storages();

  // The next rank of a pipeline that this process is to compute; blocks until the controller starts
  // a program that has one. Ranks of one program come one after the other, and are computed at the
  // same time: a process with several needs a thread for each. Cancelled after Stop;
  // DeadlineExceeded: none came within the time. The worker must outlive what is returned. Any
  // thread.
  absl::StatusOr<std::unique_ptr<PipelineLoop>> WaitForPipeline(
      absl::Duration timeout = absl::InfiniteDuration());

 private:
  explicit Worker(WorkerOptions options);

  absl::Status Open();
  absl::Status OpenDataPlane();
  absl::Status OpenTasks();
  absl::Status OpenServices();
  void StopLoops();

  const WorkerOptions options_;  // `data`: what the system allows of it
  const RealClock clock_;
  const uint64_t incarnation_;  // changes with every start
  const std::unique_ptr<WorkerMetrics> metrics_;

  // In this order so that memory outlives all that could still write it.
  std::unique_ptr<EventLoop> memory_;
  std::unique_ptr<EventLoop> control_;
  std::unique_ptr<EventLoop> data_;
  std::unique_ptr<WorkerDevices> devices_;
  std::unique_ptr<DataPlane> data_plane_;
  std::unique_ptr<ControlServices> services_;
  std::unique_ptr<ControllerSession> session_;
  bool started_ = false;
  bool stopped_ = false;
};

}  // namespace crossmesh
