#include "controller/service/reshard_service.h"

#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/metrics/controller_metrics.h"
#include "common/wire/object_name.h"
#include "common/wire/plan_codec.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/service/job_registry.h"
#include "controller/service/job_watch.h"
#include "controller/service/random_token.h"
#include "controller/service/reshard_planner.h"
#include "controller/service/unary.h"

#include <memory>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kExplainRelaysDefault = 1000;
constexpr int64_t kExplainRelaysMax = 100'000;

constexpr DurationRange kDeadlines = {absl::Milliseconds(100), absl::Hours(24)};
constexpr DurationRange kStallLimits = {absl::Milliseconds(10), absl::Hours(1)};
constexpr absl::Duration kStallLimitDefault = absl::Seconds(5);

// What an operation shows of its specification: without an inline manifest's tensors, since it is
// sent with every change.
v1::ReshardSpec SpecToShow(const v1::ReshardSpec& spec) {
  v1::ReshardSpec shown = spec;
  if (shown.has_inline_manifest()) shown.mutable_inline_manifest()->clear_tensors();
  return shown;
}

}  // namespace

ReshardService::ReshardService(const Options& options)
    : BulkService(options.budget), options_(options) {
  ServeUnary<v1::PlanReshardRequest, v1::PlanReshardResponse>(
      "PlanReshard", [this](auto* context, const PlanRequest& request, auto* response) {
        return Plan(context, request, response);
      });
  ServeServerStream<v1::ExecuteReshardRequest, v1::ExecuteReshardResponse>(
      "ExecuteReshard", [this](auto* context, const absl::StatusOr<ExecuteRequest>& request) {
        return JobWatch<v1::Operation, v1::ExecuteReshardResponse>::Follow(
            options_.registry, Begin(request, context->peer()),
            &v1::ExecuteReshardResponse::mutable_operation);
      });
}

grpc::ServerUnaryReactor* ReshardService::Plan(grpc::CallbackServerContext* context,
                                               const PlanRequest& request,
                                               v1::PlanReshardResponse* response) {
  const auto room = [&] {
    return WithoutTurn(options_.planners.CheckRoom(context->peer()), options_.planners);
  };
  absl::StatusOr<ReshardPlanner::Ticket> ticket = options_.planner.Open(request->spec(), room);
  if (!ticket.ok()) return Answer(context, ticket.status());
  // What is cached is told at once: it needs no planner, and so no place in their queue.
  if (ticket->planned != nullptr) {
    return Answer(context, Tell(*ticket->planned, /*cached=*/true, *request, *response));
  }
  const int64_t cost = ticket->cost;
  // The analyzer does not follow how Abseil's callables free what they hold.
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
  return ServeAtPlanner(
      context, options_.planners, cost, [=, this, ticket = *std::move(ticket)](const auto& end) {
        const auto done = [=, this](const ReshardPlanner::Flights::Result& planned) {
          end(planned.ok() ? Tell(**planned, /*cached=*/false, *request, *response)
                           : planned.status());
        };
        options_.planner.Plan(
            ticket, {.cancelled = [context] { return context->IsCancelled(); }, .done = done});
      });
}

absl::Status ReshardService::Tell(const PlannedReshard& planned, bool cached,
                                  const v1::PlanReshardRequest& request,
                                  v1::PlanReshardResponse& response) {
  const PlanFigures& figures = planned.plan().figures();
  options_.metrics.PlanUsed({.strategy = figures.strategy,
                             .network_bytes = figures.network_bytes,
                             .least_network_bytes = figures.least_network_bytes});
  *response.mutable_summary() = SummaryOf(
      planned.plan(), planned.proof(),
      {.topology = planned.request().topology, .duration = planned.plan_time(), .cached = cached});
  if (!request.explain()) return absl::OkStatus();
  if (request.explain_relays() < 0 || request.explain_relays() > kExplainRelaysMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "explain_relays: expected 0 to ", kExplainRelaysMax, ", found ", request.explain_relays()));
  }
  const int64_t relays = request.explain_relays();
  response.set_text(ToText(planned.plan(), relays == 0 ? kExplainRelaysDefault : relays));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReshardService::Begin(const absl::StatusOr<ExecuteRequest>& received,
                                                  const std::string& client) {
  ASSIGN_OR_RETURN(const ExecuteRequest request, received);
  RETURN_IF_ERROR(CheckRequestId(request->request_id()));
  const v1::ReshardSpec& spec = request->spec();
  v1::Operation first;
  first.set_request_id(request->request_id());
  first.set_state(v1::OPERATION_STATE_PREPARING);
  first.set_attempt(1);
  *first.mutable_reshard() = SpecToShow(spec);
  return options_.registry.Begin(std::move(first), Digest::Of(spec.SerializeAsString()),
                                 [&](JobRegistry<v1::Operation>::Entry entry) -> absl::Status {
                                   ASSIGN_OR_RETURN(
                                       OperationRequest operation,
                                       RequestOf(request, std::move(entry.job), entry.number));
                                   operation.client = client;
                                   return options_.running.Start(std::move(operation));
                                 });
}

absl::StatusOr<OperationRequest> ReshardService::RequestOf(const ExecuteRequest& received,
                                                           v1::Operation first, uint64_t number) {
  const v1::ReshardSpec& spec = received->spec();
  RETURN_IF_ERROR(CheckObjectName("spec.source.storage", spec.source().storage()));
  RETURN_IF_ERROR(CheckObjectName("spec.destination.storage", spec.destination().storage()));
  OperationRequest request;
  v1::ExecuteRequest::Start& start = request.start;
  start.set_operation_id(first.id());
  start.set_operation(number);
  start.set_token(NewToken());
  start.set_source_storage(spec.source().storage());
  start.set_destination_storage(spec.destination().storage());
  start.set_create_destination(spec.create_destination());
  start.set_checksums(!spec.has_checksums() || spec.checksums());
  absl::Duration stall_limit = kStallLimitDefault;
  if (spec.has_stall_limit()) {
    ASSIGN_OR_RETURN(stall_limit, DurationIn(spec.stall_limit(), kStallLimits, "spec.stall_limit"));
  }
  *start.mutable_stall_limit() = ToProto(stall_limit);
  if (spec.has_deadline()) {
    ASSIGN_OR_RETURN(request.deadline, DurationIn(spec.deadline(), kDeadlines, "spec.deadline"));
  }
  request.shown = std::move(first);
  ASSIGN_OR_RETURN(ReshardPlanner::Ticket ticket, options_.planner.Open(spec));
  request.planned = ticket.planned;
  if (request.planned == nullptr) {
    request.plan_cost = ticket.cost;
    // What it was asked for with takes its share of the budget as long as what was made of it.
    request.plan = [&planner = options_.planner, ticket = std::move(ticket), received](auto done) {
      planner.Plan(ticket, {.cancelled = NeverCancelled, .done = std::move(done)});
    };
  }
  return request;
}

}  // namespace crossmesh
