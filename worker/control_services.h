#pragma once

#include "common/mesh/device.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <grpcpp/impl/service_type.h>

namespace crossmesh {

class Clock;
class CommunicatorService;
class DaemonHealth;
class EventLoop;
class MetricsExporter;
class PartReplayer;
class PipelineLoop;
class ProbeService;
class ProbeTable;
class ProgramHost;
class RpcMetrics;
class RpcServer;
class TaskTable;
class WorkerDevices;
class WorkerMetrics;

// What is reached of a worker over the network: its metrics, and what controllers call, which is
// tasks, programs of pipelines, probes of links, communicators. Thread-compatible, apart from
// WaitForPipeline; destroyed when the loops have stopped.
class ControlServices {
 public:
  struct Options {
    std::string worker;
    uint64_t incarnation = 0;       // as the worker registers
    std::vector<DeviceId> devices;  // in host memory
    bool computes_pipelines = false;
    std::vector<std::string> interfaces;  // that may be probed
    std::string listen;
    std::string metrics_listen;      // empty: metrics are not served
    DaemonHealth* health = nullptr;  // of the process; null: none is asked for
    bool insecure = false;
  };
  // All outlive it.
  struct Ports {
    EventLoop& control;
    EventLoop& data;
    WorkerDevices& devices;
    TaskTable& tasks;
    PartReplayer& replayer;  // on the data loop
    const Clock& clock;
  };

  explicit ControlServices(Options options);
  ~ControlServices();

  // With those of its own calls, and what the process has; as MetricsExporter::Start says. `worker`
  // outlives it.
  absl::Status ServeMetrics(const WorkerMetrics& worker);
  // Listens and serves; as ProbeTable::Create and RpcServer::Start say.
  absl::Status Open(const Ports& ports);
  // Has these loops, which run, watched until Stop, and probes told that the worker serves.
  struct Loops {
    EventLoop* control = nullptr;
    EventLoop* data = nullptr;
  };
  void BeWatched(const Loops& loops);
  // To probes.
  void SayStopping();
  // Gives up the programs that run, and waits until they have left.
  void StopPrograms();
  // Ends all other calls and serves no more.
  void Stop();

  // With the port that was bound.
  const std::string& address() const;
  std::string metrics_address() const;  // empty: none
  // As ProgramHost::WaitForLoop. Any thread.
  absl::StatusOr<std::unique_ptr<PipelineLoop>> WaitForPipeline(absl::Duration timeout);

 private:
  const Options options_;
  const std::unique_ptr<RpcMetrics> metrics_;
  std::unique_ptr<MetricsExporter> exporter_;  // null: metrics are not served
  std::unique_ptr<ProgramHost> programs_;
  std::unique_ptr<grpc::Service> execution_service_;
  std::unique_ptr<grpc::Service> pipeline_service_;
  std::unique_ptr<CommunicatorService> communicator_service_;
  std::unique_ptr<ProbeTable> probes_;
  std::unique_ptr<ProbeService> probe_service_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace crossmesh
