#pragma once

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/mesh/device.h"
#include "common/metrics/prometheus/exporter.h"
#include "common/metrics/rpc_metrics.h"
#include "common/metrics/worker_metrics.h"
#include "common/rpc/server.h"
#include "worker/agent/session_agent.h"
#include "worker/arena_lender.h"
#include "worker/counter_sampler.h"
#include "worker/data_transport.h"
#include "worker/executor/executor.h"
#include "worker/gpu/devices/communicator_proxy.h"
#include "worker/gpu/devices/gpu_devices.h"
#include "worker/gpu/tasks/bridged_task_runner.h"
#include "worker/gpu/tasks/gpu_task_runner.h"
#include "worker/gpu/tasks/task_router.h"
#include "worker/memory/fd_server.h"
#include "worker/memory/storage_table.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/pipeline/program_host.h"
#include "worker/probe/probe_table.h"
#include "worker/service/communicator_service.h"
#include "worker/service/execution_service.h"
#include "worker/service/pipeline_execution_service.h"
#include "worker/service/probe_service.h"
#include "worker/tasks/task_table.h"
#include "worker/transport/transport.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

struct WorkerOptions {
  std::string name;                      // [a-z0-9._-]{1,63}
  std::vector<DeviceId> devices;         // its own, in host memory
  std::vector<GpuName> gpus;             // more of its own; with `devices` at least one
  std::vector<std::string> controllers;  // addresses, at least one
  std::string listen = "127.0.0.1:0";    // for Execute; or "unix:/path"
  std::string memory_socket;             // path, for user processes; empty: none
  std::string metrics_listen;            // as MetricsExporter says; empty: none
  bool insecure = false;                 // allows addresses that are not local, of metrics as well
  Arena::Pages pages = Arena::Pages::kSmall;
  DataTransportOptions data;  // as far as the system allows it
  std::string state_folder;   // remembers the controller's epoch; empty: in memory only
  ExecutorOptions executor;
  GpuProcessOptions gpu_process;    // of each GPU, but for its UUID
  bool computes_pipelines = false;  // the process calls WaitForPipeline
  // Called once on a thread of the worker, which it must not block, when the controller has asked
  // for a drain and nothing runs any more: the owner should call Stop.
  std::function<void()> on_drained;
};

// A whole worker: devices, their memory, the data plane, the executor, the processes of its GPUs,
// its gRPC server and its session with the controller. The daemon is one; a process that embeds one
// lends its own memory with Adopt. Thread-compatible; the owner's thread must be none of the
// worker's.
//
// Threads: "control" has the tasks and the session, "data" the executor, the transport and what is
// said to GPUs' processes, "memory" gives arenas back to the system; gRPC and the metrics' server
// have their own and bring everything to the first two. Each probe of a link has its own while it
// lasts.
class Worker : private SessionHost {
 public:
  // Listens, joins and serves, once each GPU is up or given up: those of a host without a driver
  // are left out. InvalidArgument: what an option lacks; FailedPrecondition: an address is in use,
  // or no device is left, with the reason; Unavailable: no transport for the interfaces; what
  // EpochFence::Open says.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(WorkerOptions options);

  // As Stop(0).
  ~Worker() override;

  // Takes no new task, waits up to `drain_timeout` until what runs has ended and is acknowledged,
  // cancels the rest, leaves the controller and joins all threads. Repeatable.
  void Stop(absl::Duration drain_timeout);

  const std::string& name() const { return options_.name; }
  // Those that it has: without GPUs that are not there.
  const std::vector<DeviceId>& devices() const { return devices_; }
  // With the ports that were bound.
  const std::string& execution_address() const { return server_->addresses().front(); }
  std::string metrics_address() const;  // empty: none

  // The storages; thread-safe. An embedding process lends its memory by Adopt.
  StorageTable& storages() { return storages_; }

  // The next rank of a pipeline that this process is to compute; blocks until the controller starts
  // a program that has one. Ranks of one program come one after the other, and are computed at the
  // same time: a process with several needs a thread for each. Cancelled after Stop. The worker
  // must outlive what is returned. Any thread.
  absl::StatusOr<std::unique_ptr<PipelineLoop>> WaitForPipeline() {
    return programs_->WaitForLoop();
  }

 private:
  explicit Worker(WorkerOptions options);

  absl::Status Open();
  absl::Status OpenDataPlane();
  absl::Status OpenMetrics();
  absl::Status OpenGpus();
  absl::Status OpenTasks();
  absl::Status OpenService();
  absl::Status OpenMemorySocket();
  absl::Status OpenSession();
  v1::WorkerSessionRequest::Register Registration() const;

  // SessionHost; on the control loop.
  void Refresh(v1::WorkerSessionRequest::Register& registration) override;
  void MakeHeartbeat(absl::AnyInvocable<void(Heartbeat)> done) override;
  void OnDrain() override;

  absl::StatusOr<std::shared_ptr<Arena>> MakeArena(const StorageKey& key, ByteCount bytes);
  absl::StatusOr<std::shared_ptr<Arena>> MakeBounceBuffer(ByteCount bytes);
  void StopLoops();
  void FinishTasks(absl::Duration drain_timeout);
  void LeaveController();

  const WorkerOptions options_;  // `data`: what the system allows of it
  const RealClock clock_;
  std::unique_ptr<WorkerMetrics> worker_metrics_;
  std::unique_ptr<RpcMetrics> rpc_metrics_;
  std::unique_ptr<MetricsExporter> exporter_;  // null: metrics are not served

  std::vector<DeviceId> devices_;  // set while it opens

  // In this order so that memory outlives whatever could still write it.
  ArenaLender lender_;
  StorageTable storages_;
  std::unique_ptr<EventLoop> memory_;
  std::unique_ptr<EventLoop> control_;
  std::unique_ptr<EventLoop> data_;
  std::unique_ptr<GpuDevices> gpus_;
  std::unique_ptr<BridgedTaskRunner> bridge_;  // has memory that the executor uses
  std::unique_ptr<TaskTable> tasks_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Executor> executor_;  // holds messages of the transport
  std::unique_ptr<GpuTaskRunner> gpu_runner_;
  std::unique_ptr<TaskRouter> router_;
  std::unique_ptr<CounterSampler> sampler_;
  std::unique_ptr<ProgramHost> programs_;
  std::unique_ptr<ExecutionService> service_;
  std::unique_ptr<PipelineExecutionService> pipeline_service_;
  std::unique_ptr<CommunicatorProxy> communicators_;
  std::unique_ptr<CommunicatorService> communicator_service_;
  std::unique_ptr<ProbeTable> probes_;
  std::unique_ptr<ProbeService> probe_service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<FdServer> fd_server_;  // null: no memory socket
  std::unique_ptr<SessionAgent> agent_;
  bool started_ = false;
  bool stopped_ = false;
};

}  // namespace crossmesh
