#pragma once

#include "common/mesh/device.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/impl/service_type.h>

namespace crossmesh {

class Clock;
class CommunicatorService;
class EventLoop;
class PipelineLoop;
class ProbeService;
class ProbeTable;
class ProgramHost;
class ReplayRunner;
class RpcMetrics;
class RpcServer;
class TaskTable;
class WorkerDevices;

// What controllers can call: tasks, programs of pipelines, probes of links, communicators.
// Thread-compatible, apart from WaitForPipeline; destroyed when the loops have stopped.
class ControlServices {
 public:
  struct Options {
    std::string worker;
    std::vector<DeviceId> devices;  // in host memory
    bool computes_pipelines = false;
    std::vector<std::string> interfaces;  // that may be probed
    std::string listen;
    bool insecure = false;
  };
  // All outlive it.
  struct Ports {
    EventLoop& control;
    EventLoop& data;
    WorkerDevices& devices;
    TaskTable& tasks;
    ReplayRunner& replays;  // on the data loop
    const Clock& clock;
    RpcMetrics& metrics;
  };

  ControlServices(Options options, const Ports& ports);
  ~ControlServices();

  // Listens and serves; as ProbeTable::Create and RpcServer::Start say.
  absl::Status Open();
  // Gives up the programs that run, and waits until they have left.
  void StopPrograms();
  // Ends all other calls and serves no more.
  void Stop();

  // With the port that was bound.
  const std::string& address() const;
  // As ProgramHost::WaitForLoop. Any thread.
  absl::StatusOr<std::unique_ptr<PipelineLoop>> WaitForPipeline();

 private:
  const Options options_;
  const Ports ports_;
  std::unique_ptr<ProgramHost> programs_;
  std::unique_ptr<grpc::Service> execution_service_;
  std::unique_ptr<grpc::Service> pipeline_service_;
  std::unique_ptr<CommunicatorService> communicator_service_;
  std::unique_ptr<ProbeTable> probes_;
  std::unique_ptr<ProbeService> probe_service_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace crossmesh
