// The calls about pipelines and their runs.

#include "client/client.h"
#include "client/client_calls.h"
#include "client/follower.h"
#include "common/base/status_macros.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"

#include <utility>

#include <grpcpp/client_context.h>

namespace crossmesh {
namespace {

// What of it came after the first release; empty: nothing.
template <typename Request>
absl::string_view LaterKindOf(const Request& request) {
  return request.has_inline_layers() ? "layer programs" : "";
}

}  // namespace

absl::StatusOr<int64_t> Client::CreatePipeline(const v1::PipelineSpec& pipeline) {
  v1::CreatePipelineRequest request;
  *request.mutable_pipeline() = pipeline;
  ASSIGN_OR_RETURN(auto response,
                   Call(&Stubs::pipelines, &v1::PipelineService::Stub::CreatePipeline, request));
  return response.revision();
}

absl::StatusOr<v1::PipelineSpec> Client::GetPipeline(const std::string& name) {
  ASSIGN_OR_RETURN(auto response, Call(&Stubs::pipelines, &v1::PipelineService::Stub::GetPipeline,
                                       Named<v1::GetPipelineRequest>(name)));
  return std::move(*response.mutable_pipeline());
}

absl::StatusOr<std::vector<v1::PipelineSpec>> Client::ListPipelines() {
  return Pages<v1::PipelineSpec>(&Stubs::pipelines, &v1::PipelineService::Stub::ListPipelines,
                                 &v1::ListPipelinesResponse::pipelines);
}

absl::Status Client::DeletePipeline(const std::string& name) {
  // Once: a second answer would be that there is none.
  return Explain(CallOnce(&Stubs::pipelines, &v1::PipelineService::Stub::DeletePipeline,
                          Named<v1::DeletePipelineRequest>(name))
                     .status());
}

absl::StatusOr<v1::PipelinePlan> Client::PlanPipeline(const v1::PlanPipelineRequest& request) {
  absl::StatusOr<v1::PlanPipelineResponse> response =
      Call(&Stubs::pipelines, &v1::PipelineService::Stub::PlanPipeline, request);
  if (!response.ok()) return ExplainRefusal(response.status(), LaterKindOf(request));
  return std::move(*response->mutable_plan());
}

absl::StatusOr<v1::PipelineRun> Client::FollowPipelineRun(const v1::StartPipelineRequest* request,
                                                          const std::string& id,
                                                          OnRunChange on_change) {
  Follower<v1::PipelineRun> follower(OptionsFor("pipeline run"), on_change);
  const auto open = [&](grpc::ClientContext& context) {
    if (request == nullptr) return absl::InvalidArgumentError("pipeline run id: found none");
    return controllers_->Call([&](Stubs& stubs) {
      return follower.Read(stubs.pipelines->StartPipeline(&context, *request),
                           &v1::StartPipelineResponse::mutable_run);
    });
  };
  const auto watch = [&](grpc::ClientContext& context, const std::string& known) {
    const auto watched = WithId<v1::WatchPipelineRunRequest>(known);
    return controllers_->Call([&](Stubs& stubs) {
      return follower.Read(stubs.pipelines->WatchPipelineRun(&context, watched),
                           &v1::WatchPipelineRunResponse::mutable_run);
    });
  };
  return follower.Follow(open, watch, id);
}

absl::StatusOr<v1::PipelineRun> Client::StartPipeline(const v1::StartPipelineRequest& request,
                                                      OnRunChange on_change) {
  absl::StatusOr<v1::PipelineRun> run = FollowPipelineRun(&request, "", on_change);
  if (run.ok()) return run;
  return ExplainRefusal(run.status(), LaterKindOf(request));
}

absl::StatusOr<v1::PipelineRun> Client::WatchPipelineRun(const std::string& id,
                                                         OnRunChange on_change) {
  return FollowPipelineRun(nullptr, id, on_change);
}

absl::StatusOr<v1::PipelineRun> Client::GetPipelineRun(const std::string& id) {
  const auto request = WithId<v1::WatchPipelineRunRequest>(id);
  absl::StatusOr<v1::WatchPipelineRunResponse> first;
  RETURN_IF_ERROR(Retry([&](Stubs& stubs) {
    grpc::ClientContext context;
    SetDeadline(context, options_.call_timeout);
    // The service has no call for a run alone: its watch tells the present state first.
    first = ReadFirst(context, stubs.pipelines->WatchPipelineRun(&context, request));
    return first.status();
  }));
  return std::move(*first->mutable_run());
}

absl::StatusOr<std::vector<v1::PipelineRun>> Client::ListPipelineRuns(int64_t count) {
  return Pages<v1::PipelineRun>(&Stubs::pipelines, &v1::PipelineService::Stub::ListPipelineRuns,
                                &v1::ListPipelineRunsResponse::runs, count);
}

absl::Status Client::StopPipelineRun(const std::string& id, bool now) {
  auto request = WithId<v1::StopPipelineRunRequest>(id);
  request.set_now(now);
  return Call(&Stubs::pipelines, &v1::PipelineService::Stub::StopPipelineRun, request).status();
}

}  // namespace crossmesh
