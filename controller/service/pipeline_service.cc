#include "controller/service/pipeline_service.h"

#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/rpc/server.h"
#include "common/wire/object_name.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/running_pipeline.h"
#include "controller/service/paging.h"
#include "controller/service/run_watch.h"
#include "controller/service/unary.h"
#include "planner/pipeline/planning/pipeline_choice.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr DurationRange kIterationDeadlines = {absl::Milliseconds(100), absl::Hours(24)};
constexpr DurationRange kStallLimits = {absl::Milliseconds(10), absl::Hours(1)};
constexpr DurationRange kRejoinLimits = {absl::ZeroDuration(), absl::Hours(24)};

}  // namespace

grpc::ServerUnaryReactor* PipelineService::CreatePipeline(grpc::CallbackServerContext* context,
                                                          const v1::CreatePipelineRequest* request,
                                                          v1::CreatePipelineResponse* response) {
  return Answer(context, Create(request->pipeline(), *response));
}

absl::Status PipelineService::Create(const v1::PipelineSpec& pipeline,
                                     v1::CreatePipelineResponse& response) {
  RETURN_IF_ERROR(CheckObjectName("pipeline", pipeline.name()));
  RETURN_IF_ERROR(resolver_.Describe(pipeline).status());
  ASSIGN_OR_RETURN(const int64_t revision,
                   options_.catalog.pipelines.Put(pipeline.name(), {.spec = pipeline}));
  response.set_revision(revision);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* PipelineService::GetPipeline(grpc::CallbackServerContext* context,
                                                       const v1::GetPipelineRequest* request,
                                                       v1::GetPipelineResponse* response) {
  return Answer(context, Get(*request, *response));
}

absl::Status PipelineService::Get(const v1::GetPipelineRequest& request,
                                  v1::GetPipelineResponse& response) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  ASSIGN_OR_RETURN(const Registered<PipelineRecord> pipeline,
                   options_.catalog.pipelines.Get(request.name()));
  *response.mutable_pipeline() = pipeline.value->spec;
  response.set_revision(pipeline.revision);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* PipelineService::ListPipelines(grpc::CallbackServerContext* context,
                                                         const v1::ListPipelinesRequest* request,
                                                         v1::ListPipelinesResponse* response) {
  return Answer(context, List(*request, *response));
}

absl::Status PipelineService::List(const v1::ListPipelinesRequest& request,
                                   v1::ListPipelinesResponse& response) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  ASSIGN_OR_RETURN(const int32_t limit, PageSize(request.page_size()));
  ASSIGN_OR_RETURN(const auto pipelines,
                   options_.catalog.pipelines.List(request.page_token(), limit));
  for (const Registered<PipelineRecord>& pipeline : pipelines) {
    *response.add_pipelines() = pipeline.value->spec;
  }
  if (response.pipelines_size() == limit) response.set_next_page_token(pipelines.back().name);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* PipelineService::DeletePipeline(
    grpc::CallbackServerContext* context, const v1::DeletePipelineRequest* request,
    v1::DeletePipelineResponse* /*response*/) {
  const absl::Status valid = CheckRequestBytes(*request);
  return Answer(context,
                valid.ok() ? options_.catalog.pipelines.Delete(request->name(), 0) : valid);
}

grpc::ServerUnaryReactor* PipelineService::PlanPipeline(grpc::CallbackServerContext* context,
                                                        const v1::PlanPipelineRequest* request,
                                                        v1::PlanPipelineResponse* response) {
  absl::StatusOr<PipelineDescription> pipeline = resolver_.Open(*request);
  if (!pipeline.ok()) return Answer(context, pipeline.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool taken = options_.planners.Post([=, this, pipeline = *std::move(pipeline)] {
    reactor->Finish(ToGrpcStatus(Plan(
        pipeline, request->choice(), [context] { return context->IsCancelled(); }, *response)));
  });
  if (!taken) {
    reactor->Finish(
        ToGrpcStatus(absl::ResourceExhaustedError("too many requests wait for the planner")));
  }
  return reactor;
}

absl::Status PipelineService::Plan(const PipelineDescription& pipeline,
                                   const v1::PipelineChoice& choice, CancelCheck cancelled,
                                   v1::PlanPipelineResponse& response) const {
  RETURN_IF_ERROR(CheckWanted(cancelled));
  const absl::Duration begin = options_.clock.Monotonic();
  ASSIGN_OR_RETURN(const std::shared_ptr<const PlannedPipeline> planned,
                   crossmesh::PlanPipeline(pipeline, choice, cancelled));
  *response.mutable_plan() = planned->Summary();
  response.mutable_plan()->set_plan_seconds(
      absl::ToDoubleSeconds(options_.clock.Monotonic() - begin));
  return absl::OkStatus();
}

grpc::ServerWriteReactor<v1::StartPipelineResponse>* PipelineService::StartPipeline(
    grpc::CallbackServerContext* /*context*/, const v1::StartPipelineRequest* request) {
  return RunWatch<v1::PipelineRun, v1::StartPipelineResponse>::Follow(
      options_.registry, Begin(*request), &v1::StartPipelineResponse::mutable_run);
}

absl::StatusOr<std::string> PipelineService::Begin(const v1::StartPipelineRequest& request) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  v1::PipelineRun first;
  first.set_request_id(request.request_id());
  first.set_state(v1::PIPELINE_RUN_STATE_PREPARING);
  first.set_pipeline(request.has_inline_pipeline() ? request.inline_pipeline().name()
                                                   : request.pipeline());
  first.set_rehearsal(request.rehearsal());
  first.set_iterations(request.iterations());
  v1::StartPipelineRequest content = request;
  content.clear_request_id();
  return options_.registry.Begin(std::move(first), Digest::Of(content.SerializeAsString()),
                                 [&](RunRegistry<v1::PipelineRun>::Entry entry) -> absl::Status {
                                   ASSIGN_OR_RETURN(PipelineRequest run, RequestOf(request));
                                   run.shown = std::move(entry.run);
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
                     DurationIn(request.stall_limit(), kStallLimits, "stall_limit"));
  }
  if (request.has_rejoin_limit()) {
    ASSIGN_OR_RETURN(run.rejoin_limit,
                     DurationIn(request.rejoin_limit(), kRejoinLimits, "rejoin_limit"));
  }
  RETURN_IF_ERROR(FromProto(request.choice()).status());
  ASSIGN_OR_RETURN(PipelineDescription pipeline, resolver_.Open(request));
  run.plan = [pipeline = std::move(pipeline), choice = request.choice()](CancelCheck cancelled) {
    return crossmesh::PlanPipeline(pipeline, choice, cancelled);
  };
  return run;
}

grpc::ServerUnaryReactor* PipelineService::ListPipelineRuns(
    grpc::CallbackServerContext* context, const v1::ListPipelineRunsRequest* request,
    v1::ListPipelineRunsResponse* response) {
  return Answer(context, ListRuns(*request, *response));
}

absl::Status PipelineService::ListRuns(const v1::ListPipelineRunsRequest& request,
                                       v1::ListPipelineRunsResponse& response) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  ASSIGN_OR_RETURN(const int32_t limit, PageSize(request.page_size()));
  for (const auto& run : options_.registry.List(request.page_token(), limit)) {
    v1::PipelineRun& listed = *response.add_runs() = *run;
    listed.clear_measurement();
    listed.mutable_plan()->clear_rank_ops();
  }
  if (response.runs_size() == limit) {
    response.set_next_page_token(response.runs(limit - 1).id());
  }
  return absl::OkStatus();
}

grpc::ServerWriteReactor<v1::WatchPipelineRunResponse>* PipelineService::WatchPipelineRun(
    grpc::CallbackServerContext* /*context*/, const v1::WatchPipelineRunRequest* request) {
  absl::StatusOr<std::string> id = request->id();
  if (absl::Status status = CheckRequestBytes(*request); !status.ok()) id = std::move(status);
  return RunWatch<v1::PipelineRun, v1::WatchPipelineRunResponse>::Follow(
      options_.registry, id, &v1::WatchPipelineRunResponse::mutable_run);
}

grpc::ServerUnaryReactor* PipelineService::StopPipelineRun(
    grpc::CallbackServerContext* context, const v1::StopPipelineRunRequest* request,
    v1::StopPipelineRunResponse* /*response*/) {
  return Answer(context, Stop(*request));
}

absl::Status PipelineService::Stop(const v1::StopPipelineRunRequest& request) {
  RETURN_IF_ERROR(CheckRequestBytes(request));
  // NotFound for a run that never was; one that has ended stays as it is.
  RETURN_IF_ERROR(options_.registry.Get(request.id()).status());
  options_.running.With(request.id(), [now = request.now()](RunningPipeline& run) {
    run.Stop(now, "a client asked for it");
  });
  return absl::OkStatus();
}

}  // namespace crossmesh
