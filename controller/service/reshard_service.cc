#include "controller/service/reshard_service.h"

#include "common/base/status_macros.h"
#include "common/rpc/server.h"
#include "common/wire/object_name.h"
#include "common/wire/plan_codec.h"
#include "common/wire/time_codec.h"
#include "controller/service/operation_watch.h"
#include "controller/service/random_token.h"
#include "controller/service/unary.h"

#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kExplainRelaysDefault = 1000;
constexpr int64_t kExplainRelaysMax = 100'000;

constexpr DurationRange kDeadlines = {absl::Milliseconds(100), absl::Hours(24)};
constexpr DurationRange kStallLimits = {absl::Milliseconds(10), absl::Hours(1)};

}  // namespace

grpc::ServerUnaryReactor* ReshardService::PlanReshard(grpc::CallbackServerContext* context,
                                                      const v1::PlanReshardRequest* request,
                                                      v1::PlanReshardResponse* response) {
  absl::StatusOr<ReshardPlanner::Ticket> ticket = options_.planner.Open(request->spec());
  if (!ticket.ok()) return Answer(context, ticket.status());
  if (ticket->planned != nullptr)
    return Answer(context, Plan(*ticket, *request, NeverCancelled, *response));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool taken = options_.planners.Post([=, this, ticket = *std::move(ticket)] {
    reactor->Finish(ToGrpcStatus(
        Plan(ticket, *request, [context] { return context->IsCancelled(); }, *response)));
  });
  if (!taken) {
    reactor->Finish(
        ToGrpcStatus(absl::ResourceExhaustedError("too many requests wait for the planner")));
  }
  return reactor;
}

absl::Status ReshardService::Plan(const ReshardPlanner::Ticket& ticket,
                                  const v1::PlanReshardRequest& request, CancelCheck cancelled,
                                  v1::PlanReshardResponse& response) {
  RETURN_IF_ERROR(CheckWanted(cancelled));
  ASSIGN_OR_RETURN(const std::shared_ptr<const PlannedReshard> planned,
                   options_.planner.Plan(ticket, cancelled));
  const PlanFigures& figures = planned->plan().figures();
  options_.metrics.PlanUsed({.strategy = figures.strategy,
                             .network_bytes = figures.network_bytes,
                             .least_network_bytes = figures.least_network_bytes});
  *response.mutable_summary() = SummaryOf(planned->plan(), planned->proof(),
                                          {.topology = planned->request().topology,
                                           .duration = planned->plan_time(),
                                           .cached = ticket.planned != nullptr});
  if (!request.explain()) return absl::OkStatus();
  if (request.explain_relays() < 0 || request.explain_relays() > kExplainRelaysMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "explain_relays: expected 0 to ", kExplainRelaysMax, ", found ", request.explain_relays()));
  }
  const int64_t relays = request.explain_relays();
  response.set_text(ToText(planned->plan(), relays == 0 ? kExplainRelaysDefault : relays));
  return absl::OkStatus();
}

grpc::ServerWriteReactor<v1::ExecuteReshardResponse>* ReshardService::ExecuteReshard(
    grpc::CallbackServerContext* /*context*/, const v1::ExecuteReshardRequest* request) {
  using Watch = OperationWatch<v1::ExecuteReshardResponse>;
  const absl::StatusOr<std::string> id = Begin(*request);
  return id.ok() ? Watch::Follow(options_.registry, *id)
                 : Watch::Refuse(options_.registry, id.status());
}

absl::StatusOr<std::string> ReshardService::Begin(const v1::ExecuteReshardRequest& request) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  const v1::ReshardSpec& spec = request.spec();
  // What was begun goes on, whatever has become of the objects that it names.
  ASSIGN_OR_RETURN(const std::optional<std::string> known,
                   options_.registry.Find(spec, request.request_id()));
  if (known.has_value()) return *known;
  if (refusing_) return absl::UnavailableError("the controller is stopping");
  ASSIGN_OR_RETURN(OperationRequest operation, RequestOf(spec));
  ASSIGN_OR_RETURN(const OperationRegistry::Entry entry,
                   options_.registry.Open(spec, request.request_id()));
  if (!entry.is_new) return entry.id;
  operation.id = entry.id;
  operation.number = entry.number;
  if (absl::Status status = options_.runner.Start(std::move(operation)); !status.ok()) {
    options_.registry.Withdraw(entry.id, status);
    return status;
  }
  return entry.id;
}

absl::StatusOr<OperationRequest> ReshardService::RequestOf(const v1::ReshardSpec& spec) {
  RETURN_IF_ERROR(CheckObjectName("spec.source.storage", spec.source().storage()));
  RETURN_IF_ERROR(CheckObjectName("spec.destination.storage", spec.destination().storage()));
  OperationRequest request{.source_storage = spec.source().storage(),
                           .destination_storage = spec.destination().storage(),
                           .create_destination = spec.create_destination(),
                           .checksums = !spec.has_checksums() || spec.checksums()};
  if (spec.has_deadline()) {
    ASSIGN_OR_RETURN(request.deadline, DurationIn(spec.deadline(), kDeadlines, "spec.deadline"));
  }
  if (spec.has_stall_limit()) {
    ASSIGN_OR_RETURN(request.stall_limit,
                     DurationIn(spec.stall_limit(), kStallLimits, "spec.stall_limit"));
  }
  request.token_high = RandomTokenWord();
  request.token_low = RandomTokenWord();
  ASSIGN_OR_RETURN(ReshardPlanner::Ticket ticket, options_.planner.Open(spec));
  request.planned = ticket.planned;
  if (request.planned == nullptr) {
    request.plan = [&planner = options_.planner, ticket = std::move(ticket)] {
      return planner.Plan(ticket);
    };
  }
  return request;
}

}  // namespace crossmesh
