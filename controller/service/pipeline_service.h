#pragma once

#include "common/base/cancel_check.h"
#include "common/base/clock.h"
#include "controller/catalog/catalog.h"
#include "controller/dispatch/running_table.h"
#include "controller/service/pipeline_resolver.h"
#include "controller/service/run_registry.h"
#include "crossmesh/v1/pipeline_service.grpc.pb.h"

#include <string>

namespace crossmesh {

class RunningPipeline;
struct PipelineRequest;

// Pipelines by name, their plans and their runs. Thread-safe.
class PipelineService final : public v1::PipelineService::CallbackService {
 public:
  struct Options {
    Catalog& catalog;
    RunRegistry<v1::PipelineRun>& registry;
    RunningTable<RunningPipeline>& running;
    TaskQueue& planners;
    const Clock& clock;
  };
  explicit PipelineService(const Options& options)
      : options_(options), resolver_(options.catalog) {}

  grpc::ServerUnaryReactor* CreatePipeline(grpc::CallbackServerContext* context,
                                           const v1::CreatePipelineRequest* request,
                                           v1::CreatePipelineResponse* response) override;
  grpc::ServerUnaryReactor* GetPipeline(grpc::CallbackServerContext* context,
                                        const v1::GetPipelineRequest* request,
                                        v1::GetPipelineResponse* response) override;
  grpc::ServerUnaryReactor* ListPipelines(grpc::CallbackServerContext* context,
                                          const v1::ListPipelinesRequest* request,
                                          v1::ListPipelinesResponse* response) override;
  grpc::ServerUnaryReactor* DeletePipeline(grpc::CallbackServerContext* context,
                                           const v1::DeletePipelineRequest* request,
                                           v1::DeletePipelineResponse* response) override;
  grpc::ServerUnaryReactor* PlanPipeline(grpc::CallbackServerContext* context,
                                         const v1::PlanPipelineRequest* request,
                                         v1::PlanPipelineResponse* response) override;
  grpc::ServerWriteReactor<v1::StartPipelineResponse>* StartPipeline(
      grpc::CallbackServerContext* context, const v1::StartPipelineRequest* request) override;
  grpc::ServerUnaryReactor* ListPipelineRuns(grpc::CallbackServerContext* context,
                                             const v1::ListPipelineRunsRequest* request,
                                             v1::ListPipelineRunsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchPipelineRunResponse>* WatchPipelineRun(
      grpc::CallbackServerContext* context, const v1::WatchPipelineRunRequest* request) override;
  grpc::ServerUnaryReactor* StopPipelineRun(grpc::CallbackServerContext* context,
                                            const v1::StopPipelineRunRequest* request,
                                            v1::StopPipelineRunResponse* response) override;

 private:
  absl::Status Create(const v1::PipelineSpec& pipeline, v1::CreatePipelineResponse& response);
  absl::Status Get(const v1::GetPipelineRequest& request, v1::GetPipelineResponse& response);
  absl::Status List(const v1::ListPipelinesRequest& request, v1::ListPipelinesResponse& response);
  absl::Status ListRuns(const v1::ListPipelineRunsRequest& request,
                        v1::ListPipelineRunsResponse& response);
  absl::Status Plan(const PipelineDescription& pipeline, const v1::PipelineChoice& choice,
                    CancelCheck cancelled, v1::PlanPipelineResponse& response) const;
  // The id of the run, begun now or before.
  absl::StatusOr<std::string> Begin(const v1::StartPipelineRequest& request);
  absl::StatusOr<PipelineRequest> RequestOf(const v1::StartPipelineRequest& request);
  absl::Status Stop(const v1::StopPipelineRunRequest& request);

  const Options options_;
  PipelineResolver resolver_;
};

}  // namespace crossmesh
