#pragma once

#include "controller/requests/bulk_service.h"
#include "controller/service/pipeline_planner.h"
#include "crossmesh/v1/pipeline_service.grpc.pb.h"

#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class PlanningQueue;
class RunningPipeline;
struct PipelineRequest;
template <typename Subject>
class JobRegistry;
template <typename Running>
class RunningTable;

// Pipelines by name, their plans and their runs. Thread-safe.
class PipelineService final : public BulkService<v1::PipelineService> {
 public:
  struct Options {
    RequestBudget& budget;
    Catalog& catalog;
    JobRegistry<v1::PipelineRun>& registry;
    RunningTable<RunningPipeline>& running;
    PlanningQueue& planners;
    const Clock& clock;
  };
  explicit PipelineService(const Options& options);

  // Takes up the runs that a former controller has left, once the catalog is read, and before any
  // client can ask for more. The store's errors; DataLoss: a run's record does not parse.
  absl::Status TakeUp();

  grpc::ServerUnaryReactor* GetPipeline(grpc::CallbackServerContext* context,
                                        const v1::GetPipelineRequest* request,
                                        v1::GetPipelineResponse* response) override;
  grpc::ServerUnaryReactor* ListPipelines(grpc::CallbackServerContext* context,
                                          const v1::ListPipelinesRequest* request,
                                          v1::ListPipelinesResponse* response) override;
  grpc::ServerUnaryReactor* DeletePipeline(grpc::CallbackServerContext* context,
                                           const v1::DeletePipelineRequest* request,
                                           v1::DeletePipelineResponse* response) override;
  grpc::ServerUnaryReactor* ListPipelineRuns(grpc::CallbackServerContext* context,
                                             const v1::ListPipelineRunsRequest* request,
                                             v1::ListPipelineRunsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchPipelineRunResponse>* WatchPipelineRun(
      grpc::CallbackServerContext* context, const v1::WatchPipelineRunRequest* request) override;
  grpc::ServerUnaryReactor* StopPipelineRun(grpc::CallbackServerContext* context,
                                            const v1::StopPipelineRunRequest* request,
                                            v1::StopPipelineRunResponse* response) override;

 private:
  using StartRequest = BulkRequest<v1::StartPipelineRequest>;

  absl::Status Create(const v1::PipelineSpec& pipeline, v1::CreatePipelineResponse& response);
  grpc::ServerUnaryReactor* Plan(grpc::CallbackServerContext* context,
                                 const BulkRequest<v1::PlanPipelineRequest>& request,
                                 v1::PlanPipelineResponse* response);
  // The id of the run, begun now or before.
  absl::StatusOr<std::string> Begin(const absl::StatusOr<StartRequest>& received,
                                    const std::string& client);
  absl::StatusOr<PipelineRequest> RequestOf(const v1::StartPipelineRequest& request);

  const Options options_;
  const PipelinePlanner planner_;
};

}  // namespace crossmesh
