#pragma once

#include "controller/catalog/job_records.h"
#include "controller/dispatch/job_numbers.h"
#include "controller/dispatch/running_pipeline.h"
#include "controller/dispatch/running_table.h"
#include "controller/service/job_registry.h"
#include "tests/simulation/simulated_gateway.h"
#include "tests/simulation/simulated_history.h"
#include "tests/simulation/simulated_network.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// The runs of pipelines of a controller that leads: real, but for the service's few lines between a
// request and the registry. Every run has a pipeline of its own, whose tensor has its name.
class SimulatedPipelines {
 public:
  struct Ports {
    SimulatedNode& node;
    SimulatedNetwork& network;
    const std::vector<SimulatedWorker*>& workers;
    MetadataStore& store;
    JobNumbers& numbers;
    WorkerRegistry& registry;
    TaskQueue& queue;
    PlanningQueue& planners;
    SimulatedHistory& history;
    const std::function<bool(absl::Duration since)>& can_record;  // as SimulatedController's
    uint64_t epoch = 0;
  };
  explicit SimulatedPipelines(const Ports& ports);

  // What a former controller has left. The store's errors.
  absl::Status TakeUp();
  void WorkerIsLost(const std::string& worker, const absl::Status& why);
  // Breaks all calls off; nobody hears of it but clients.
  void Stop(const absl::Status& why);

  // Called in the process of the client.
  using OnRun = std::function<void(const v1::PipelineRun&)>;
  // `run` names what is asked for, and is the request's id.
  void Run(const std::shared_ptr<SimulatedStream>& stream, const std::string& run,
           int64_t iterations, OnRun on_run);
  // When the iteration that runs has ended, or at once. Ends the call.
  void StopRun(const std::shared_ptr<SimulatedStream>& stream, const std::string& id, bool now);

 private:
  absl::StatusOr<std::string> Begin(const std::string& run, int64_t iterations);
  // A worker of the run is lost: its iteration must not go on as if nothing had happened.
  void ExpectFailure(const std::shared_ptr<const v1::PipelineRun>& run, const std::string& worker);

  const Ports ports_;
  JobRecords records_;
  SimulatedProgramGateway gateway_;
  JobRegistry<v1::PipelineRun> registry_;
  RunningTable<RunningPipeline> running_;
  std::map<uint64_t, std::shared_ptr<SimulatedStream>> calls_;  // by the numbers of their streams
};

}  // namespace crossmesh
