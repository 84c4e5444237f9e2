#pragma once

#include "controller/controller.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class CommunicatorGateway;
class CommunicatorLeases;
class ControllerMetrics;
class MetadataStore;
class PlanningQueue;
class ProbeGateway;
class RunningOperation;
class RunningPipeline;
class TaskQueue;
class WorkerRegistry;
template <typename Subject>
class JobRegistry;
template <typename Running>
class RunningTable;

// What a controller serves: its API, with the catalog and the plans behind it, the sessions of
// workers, and its metrics. Thread-safe.
class ControllerServer {
 public:
  // What the services act on; all outlive the server.
  struct Environment {
    MetadataStore& store;
    const Clock& clock;
    ControllerMetrics& metrics;
    uint64_t epoch = 0;
    WorkerRegistry& workers;
    ProbeGateway& probes;
    CommunicatorLeases& communicators;
    CommunicatorGateway& communicator_gateway;
    TaskQueue& queue;
    PlanningQueue& planners;
    JobRegistry<v1::Operation>& operation_registry;
    RunningTable<RunningOperation>& operations;
    JobRegistry<v1::PipelineRun>& pipeline_job_registry;
    RunningTable<RunningPipeline>& pipelines;
  };
  // Takes up operations and runs of pipelines that a former controller has left. As
  // Controller::Create.
  static absl::StatusOr<std::unique_ptr<ControllerServer>> Start(const Controller::Options& options,
                                                                 const Environment& environment);
  ~ControllerServer();

  const std::vector<std::string>& addresses() const;
  std::string metrics_address() const;

  // Health says no from now on.
  void SayNotServing();
  // Workers are told why, and none is taken any more.
  void CloseSessions(const absl::Status& why);
  // As RpcServer::Shutdown.
  void Shutdown(absl::Duration grace);

 private:
  struct Parts;
  explicit ControllerServer(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace crossmesh
