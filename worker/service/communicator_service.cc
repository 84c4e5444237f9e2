#include "worker/service/communicator_service.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/rpc/status_codec.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/time_codec.h"
#include "worker/gpu/devices/communicator_proxy.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr DurationRange kTimeouts = {absl::Nanoseconds(1), absl::Hours(1)};
constexpr size_t kIdBytesMax = 4096;

// Request: has a key, and one of its ranks by index.
template <typename Request>
absl::StatusOr<RankOfKey> RankOf(const Request& request) {
  RankOfKey found;
  ASSIGN_OR_RETURN(found.key, FromProto(request.key()));
  const int64_t ranks = std::ssize(found.key.ranks);
  if (request.rank() < 0 || request.rank() >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank: expected 0 to ", ranks - 1, ", found ", request.rank()));
  }
  found.rank = found.key.ranks[request.rank()];
  return found;
}

}  // namespace

CommunicatorService::CommunicatorService(EventLoop& loop, GpuDevices& gpus)
    : loop_(loop), proxy_(std::make_unique<CommunicatorProxy>(gpus)) {}

CommunicatorService::~CommunicatorService() = default;

CommunicatorService::Reactor* CommunicatorService::OnLoop(
    grpc::CallbackServerContext* context, absl::AnyInvocable<absl::Status(Reactor*)> order) {
  Reactor* const reactor = context->DefaultReactor();
  const bool is_posted = loop_.Post([this, reactor, order = std::move(order)]() mutable {
    open_.insert(reactor);
    if (stopped_) return Finish(reactor, absl::UnavailableError("the worker stops"));
    const absl::Status status = order(reactor);
    if (!status.ok()) Finish(reactor, status);
  });
  if (!is_posted) reactor->Finish(ToGrpcStatus(absl::UnavailableError("the worker stops")));
  return reactor;
}

void CommunicatorService::Finish(Reactor* reactor, const absl::Status& status) {
  // Stop may have ended the call meanwhile.
  if (open_.erase(reactor) > 0) reactor->Finish(ToGrpcStatus(status));
}

void CommunicatorService::Stop() {
  loop_.Post([this] {
    stopped_ = true;
    while (!open_.empty()) Finish(*open_.begin(), absl::UnavailableError("the worker stops"));
  });
}

grpc::ServerUnaryReactor* CommunicatorService::GetPreflight(grpc::CallbackServerContext* context,
                                                            const v1::GetPreflightRequest* request,
                                                            v1::GetPreflightResponse* response) {
  return OnLoop(context, [=, this](Reactor* reactor) -> absl::Status {
    ASSIGN_OR_RETURN(const RankName rank, FromProto(request->rank()));
    proxy_->GetPreflight(rank, request->epoch(), [=, this](absl::StatusOr<PreflightReport> report) {
      if (report.ok() && is_open(reactor)) *response->mutable_report() = ToProto(*report);
      Finish(reactor, report.status());
    });
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* CommunicatorService::MintCommunicatorId(
    grpc::CallbackServerContext* context, const v1::MintCommunicatorIdRequest* request,
    v1::MintCommunicatorIdResponse* response) {
  return OnLoop(context, [=, this](Reactor* reactor) -> absl::Status {
    ASSIGN_OR_RETURN(const RankName rank, FromProto(request->rank()));
    proxy_->MintId(rank, request->epoch(), [=, this](const absl::StatusOr<std::string>& id) {
      if (id.ok() && is_open(reactor)) response->set_id(*id);
      Finish(reactor, id.status());
    });
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* CommunicatorService::CreateCommunicator(
    grpc::CallbackServerContext* context, const v1::CreateCommunicatorRequest* request,
    v1::CreateCommunicatorResponse* response) {
  return OnLoop(context, [=, this](Reactor* reactor) -> absl::Status {
    ASSIGN_OR_RETURN(const RankOfKey at, RankOf(*request));
    RETURN_IF_ERROR(DurationIn(request->timeout(), kTimeouts, "timeout").status());
    if (request->id().size() > kIdBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("id: expected at most ", kIdBytesMax,
                                                     " bytes, found ", request->id().size()));
    }
    v1::GpuRequest::CreateCommunicator order;
    *order.mutable_key() = request->key();
    order.set_ticket(request->ticket());
    order.set_id(request->id());
    *order.mutable_timeout() = request->timeout();
    proxy_->Create(at, std::move(order), [=, this](const absl::StatusOr<int64_t>& bytes) {
      if (bytes.ok() && is_open(reactor)) response->set_size_bytes(*bytes);
      Finish(reactor, bytes.status());
    });
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* CommunicatorService::DestroyCommunicator(
    grpc::CallbackServerContext* context, const v1::DestroyCommunicatorRequest* request,
    v1::DestroyCommunicatorResponse* /*response*/) {
  return OnLoop(context, [=, this](Reactor* reactor) -> absl::Status {
    ASSIGN_OR_RETURN(const RankOfKey at, RankOf(*request));
    RETURN_IF_ERROR(DurationIn(request->timeout(), kTimeouts, "timeout").status());
    v1::GpuRequest::DestroyCommunicator order;
    *order.mutable_key() = request->key();
    order.set_ticket(request->ticket());
    *order.mutable_timeout() = request->timeout();
    proxy_->Destroy(at, std::move(order),
                    [=, this](const absl::Status& gone) { Finish(reactor, gone); });
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* CommunicatorService::StopCommunicator(
    grpc::CallbackServerContext* context, const v1::StopCommunicatorRequest* request,
    v1::StopCommunicatorResponse* /*response*/) {
  return OnLoop(context, [=, this](Reactor* reactor) -> absl::Status {
    ASSIGN_OR_RETURN(const RankOfKey at, RankOf(*request));
    v1::GpuRequest::StopCommunicator order;
    *order.mutable_key() = request->key();
    *order.mutable_cause() = ToProto(absl::CancelledError(request->reason()));
    proxy_->Stop(at, std::move(order),
                 [=, this](const absl::Status& gone) { Finish(reactor, gone); });
    return absl::OkStatus();
  });
}

}  // namespace crossmesh
