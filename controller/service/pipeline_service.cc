#include "controller/service/pipeline_service.h"

#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/wire/object_name.h"
#include "common/wire/time_codec.h"
#include "controller/catalog/catalog.h"
#include "controller/dispatch/runnable_plan.h"
#include "controller/dispatch/running_pipeline.h"
#include "controller/dispatch/running_table.h"
#include "controller/service/job_registry.h"
#include "controller/service/job_watch.h"
#include "controller/service/paging.h"
#include "controller/service/unary.h"
#include "crossmesh/stored/v1/pipeline.pb.h"
#include "planner/pipeline/planning/pipeline_choice.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr DurationRange kIterationDeadlines = {absl::Milliseconds(100), absl::Hours(24)};
constexpr DurationRange kRunStallLimits = {absl::Milliseconds(10), absl::Hours(1)};
constexpr DurationRange kRejoinLimits = {absl::ZeroDuration(), absl::Hours(24)};

// As long as what was made of a request waits for a planner it takes its share of the budget.
void HoldUntilPlanned(BulkRequest<v1::StartPipelineRequest> request, PipelineRequest& run) {
  run.plan = [request = std::move(request),
              plan = std::move(run.plan)](CancelCheck cancelled) mutable {
    const BulkRequest<v1::StartPipelineRequest> no_longer = std::move(request);
    return plan(std::move(cancelled));
  };
}

}  // namespace

// A specification, which has the tensors of every edge, may be larger than ordinary requests are.
PipelineService::PipelineService(const Options& options)
    : BulkService(options.budget), options_(options), planner_(options.catalog, options.clock) {
  ServeUnary<v1::CreatePipelineRequest, v1::CreatePipelineResponse>(
      "CreatePipeline", [this](auto* context, const auto& request, auto* response) {
        return Answer(context, Create(request->pipeline(), *response));
      });
  ServeUnary<v1::PlanPipelineRequest, v1::PlanPipelineResponse>(
      "PlanPipeline", [this](auto* context, const auto& request, auto* response) {
        return Plan(context, request, response);
      });
  ServeServerStream<v1::StartPipelineRequest, v1::StartPipelineResponse>(
      "StartPipeline", [this](auto* context, const absl::StatusOr<StartRequest>& request) {
        return JobWatch<v1::PipelineRun, v1::StartPipelineResponse>::Follow(
            options_.registry, Begin(request, context->peer()),
            &v1::StartPipelineResponse::mutable_run);
      });
}

absl::Status PipelineService::Create(const v1::PipelineSpec& pipeline,
                                     v1::CreatePipelineResponse& response) {
  RETURN_IF_ERROR(CheckObjectName("pipeline", pipeline.name()));
  RETURN_IF_ERROR(planner_.Check(pipeline));
  ASSIGN_OR_RETURN(const int64_t revision,
                   options_.catalog.pipelines.Put(pipeline.name(), {.spec = pipeline}));
  response.set_revision(revision);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* PipelineService::GetPipeline(grpc::CallbackServerContext* context,
                                                       const v1::GetPipelineRequest* request,
                                                       v1::GetPipelineResponse* response) {
  return Serve(context, *request, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Registered<PipelineRecord> pipeline,
                     options_.catalog.pipelines.Get(request->name()));
    *response->mutable_pipeline() = pipeline.value->spec;
    response->set_revision(pipeline.revision);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* PipelineService::ListPipelines(grpc::CallbackServerContext* context,
                                                         const v1::ListPipelinesRequest* request,
                                                         v1::ListPipelinesResponse* response) {
  return Serve(context, *request, [&] {
    return ListObjects(options_.catalog.pipelines, *request, *response,
                       [&](const Registered<PipelineRecord>& pipeline) {
                         *response->add_pipelines() = pipeline.value->spec;
                       });
  });
}

grpc::ServerUnaryReactor* PipelineService::DeletePipeline(
    grpc::CallbackServerContext* context, const v1::DeletePipelineRequest* request,
    v1::DeletePipelineResponse* /*response*/) {
  return Serve(context, *request,
               [&] { return options_.catalog.pipelines.Delete(request->name(), 0).status(); });
}

grpc::ServerUnaryReactor* PipelineService::Plan(grpc::CallbackServerContext* context,
                                                const BulkRequest<v1::PlanPipelineRequest>& request,
                                                v1::PlanPipelineResponse* response) {
  absl::StatusOr<PipelinePlanner::Planning> planning = planner_.Open(*request);
  if (!planning.ok()) return Answer(context, planning.status());
  const int64_t cost = planning->cost;
  return ServeAtPlanner(
      context, options_.planners, cost,
      [=, this, held = request, planning = *std::move(planning)](const auto& end) mutable {
        absl::StatusOr<v1::PipelinePlan> plan =
            planner_.Plan(planning, [context] { return context->IsCancelled(); });
        if (plan.ok()) *response->mutable_plan() = *std::move(plan);
        end(plan.status());
      });
}

absl::StatusOr<std::string> PipelineService::Begin(const absl::StatusOr<StartRequest>& received,
                                                   const std::string& client) {
  ASSIGN_OR_RETURN(const StartRequest held, received);
  const v1::StartPipelineRequest& request = *held;
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  v1::PipelineRun first;
  first.set_request_id(request.request_id());
  first.set_state(v1::PIPELINE_RUN_STATE_PREPARING);
  first.set_pipeline(request.has_inline_pipeline() ? request.inline_pipeline().name()
                     : request.has_inline_layers() ? request.inline_layers().name()
                                                   : request.pipeline());
  first.set_rehearsal(request.rehearsal());
  first.set_iterations(request.iterations());
  v1::StartPipelineRequest content = request;
  content.clear_request_id();
  return options_.registry.Begin(std::move(first), Digest::Of(content.SerializeAsString()),
                                 [&](JobRegistry<v1::PipelineRun>::Entry entry) -> absl::Status {
                                   ASSIGN_OR_RETURN(PipelineRequest run, RequestOf(request));
                                   run.shown = std::move(entry.job);
                                   run.client = client;
                                   HoldUntilPlanned(held, run);
                                   return options_.running.Start(std::move(run));
                                 });
}

absl::StatusOr<PipelineRequest> PipelineService::RequestOf(
    const v1::StartPipelineRequest& request) {
  if (request.iterations() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("iterations: expected at least 1, found ", request.iterations()));
  }
  PipelineRequest run{.checksums = !request.has_checksums() || request.checksums(),
                      .stop_at_failure = request.stop_at_failure()};
  if (request.has_iteration_deadline()) {
    ASSIGN_OR_RETURN(run.iteration_deadline, DurationIn(request.iteration_deadline(),
                                                        kIterationDeadlines, "iteration_deadline"));
  }
  if (request.has_stall_limit()) {
    ASSIGN_OR_RETURN(run.stall_limit,
                     DurationIn(request.stall_limit(), kRunStallLimits, "stall_limit"));
  }
  if (request.has_rejoin_limit()) {
    ASSIGN_OR_RETURN(run.rejoin_limit,
                     DurationIn(request.rejoin_limit(), kRejoinLimits, "rejoin_limit"));
  }
  RETURN_IF_ERROR(FromProto(request.choice()).status());
  stored::v1::PipelineResumption resumption;
  ASSIGN_OR_RETURN(*resumption.mutable_request(), planner_.Resolve(request));
  run.resumption = resumption.SerializeAsString();
  ASSIGN_OR_RETURN(PipelinePlanner::Planning planning, planner_.Open(resumption.request()));
  run.plan_cost = planning.cost;
  run.plan = std::move(planning.plan);
  return run;
}

grpc::ServerUnaryReactor* PipelineService::ListPipelineRuns(
    grpc::CallbackServerContext* context, const v1::ListPipelineRunsRequest* request,
    v1::ListPipelineRunsResponse* response) {
  return Serve(context, *request, [&] {
    return ListRuns(options_.registry, *request, *response, [&](const v1::PipelineRun& run) {
      // What grows with the pipeline would make a page of runs too large.
      v1::PipelineRun& listed = *response->add_runs() = run;
      listed.clear_measurement();
      if (!listed.has_plan()) return;
      listed.mutable_plan()->clear_rank_ops();
      listed.mutable_plan()->clear_layers();
    });
  });
}

grpc::ServerWriteReactor<v1::WatchPipelineRunResponse>* PipelineService::WatchPipelineRun(
    grpc::CallbackServerContext* /*context*/, const v1::WatchPipelineRunRequest* request) {
  return JobWatch<v1::PipelineRun, v1::WatchPipelineRunResponse>::Follow(
      options_.registry, WatchedId(*request), &v1::WatchPipelineRunResponse::mutable_run);
}

grpc::ServerUnaryReactor* PipelineService::StopPipelineRun(
    grpc::CallbackServerContext* context, const v1::StopPipelineRunRequest* request,
    v1::StopPipelineRunResponse* /*response*/) {
  return Serve(context, *request, [&]() -> absl::Status {
    // NotFound for a run that never was; one that has ended stays as it is.
    RETURN_IF_ERROR(options_.registry.Get(request->id()).status());
    options_.running.With(request->id(), [now = request->now()](RunningPipeline& run) {
      run.Stop(now, "a client asked for it");
    });
    return absl::OkStatus();
  });
}

}  // namespace crossmesh
