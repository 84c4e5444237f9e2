#include "worker/service/communicator_service.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/rpc/status_codec.h"
#include "common/wire/communicator_codec.h"
#include "worker/gpu/devices/gpu_devices.h"

#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<CommunicatorService::Address> CommunicatorService::AddressOf(
    const v1::CommunicatorKey::Rank& rank, uint64_t epoch) {
  ASSIGN_OR_RETURN(RankName name, FromProto(rank));
  return Address{.rank = std::move(name), .epoch = epoch};
}

absl::StatusOr<CommunicatorService::Address> CommunicatorService::AddressOf(
    const v1::CommunicatorKey& key, int32_t rank) {
  ASSIGN_OR_RETURN(CommunicatorKey parsed, FromProto(key));
  const int64_t ranks = std::ssize(parsed.ranks);
  if (rank < 0 || rank >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank: expected 0 to ", ranks - 1, ", found ", rank));
  }
  return Address{.rank = std::move(parsed.ranks[rank]), .epoch = parsed.epoch};
}

CommunicatorService::Reactor* CommunicatorService::PassOn(grpc::CallbackServerContext* context,
                                                          absl::StatusOr<Address> to,
                                                          v1::GpuRequest request, Take take) {
  Reactor* const reactor = context->DefaultReactor();
  // The call may be over, and its response gone, before the process answers.
  auto finish = [this, reactor,
                 take = std::move(take)](absl::StatusOr<GpuProcess::Reply> reply) mutable {
    if (reply.ok() && open_.contains(reactor)) take(reply->answer);
    Finish(reactor, reply.status());
  };
  const bool is_posted =
      loop_.Post([this, reactor, to = std::move(to), request = std::move(request),
                  finish = std::move(finish)]() mutable {
        open_.insert(reactor);
        if (stopped_) return Finish(reactor, absl::UnavailableError("the worker stops"));
        if (!to.ok()) return Finish(reactor, to.status());
        gpus_.Admit(to->rank, to->epoch,
                    [request = std::move(request),
                     finish = std::move(finish)](absl::StatusOr<GpuDevice*> gpu) mutable {
                      if (!gpu.ok()) return finish(gpu.status());
                      (*gpu)->process().Call(std::move(request), std::move(finish));
                    });
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
  v1::GpuRequest passed;
  *passed.mutable_get_preflight() = *request;
  return PassOn(context, AddressOf(request->rank(), request->epoch()), std::move(passed),
                [response](auto& answer) { response->Swap(answer.mutable_preflight()); });
}

grpc::ServerUnaryReactor* CommunicatorService::MintCommunicatorId(
    grpc::CallbackServerContext* context, const v1::MintCommunicatorIdRequest* request,
    v1::MintCommunicatorIdResponse* response) {
  v1::GpuRequest passed;
  *passed.mutable_mint_communicator_id() = *request;
  return PassOn(context, AddressOf(request->rank(), request->epoch()), std::move(passed),
                [response](auto& answer) { response->Swap(answer.mutable_minted()); });
}

grpc::ServerUnaryReactor* CommunicatorService::CreateCommunicator(
    grpc::CallbackServerContext* context, const v1::CreateCommunicatorRequest* request,
    v1::CreateCommunicatorResponse* response) {
  v1::GpuRequest passed;
  *passed.mutable_create_communicator() = *request;
  return PassOn(context, AddressOf(request->key(), request->rank()), std::move(passed),
                [response](auto& answer) { response->Swap(answer.mutable_created()); });
}

grpc::ServerUnaryReactor* CommunicatorService::DestroyCommunicator(
    grpc::CallbackServerContext* context, const v1::DestroyCommunicatorRequest* request,
    v1::DestroyCommunicatorResponse* /*response*/) {
  v1::GpuRequest passed;
  *passed.mutable_destroy_communicator() = *request;
  return PassOn(context, AddressOf(request->key(), request->rank()), std::move(passed),
                [](auto& /*answer*/) {});
}

grpc::ServerUnaryReactor* CommunicatorService::MeasureGpu(grpc::CallbackServerContext* context,
                                                          const v1::MeasureGpuRequest* request,
                                                          v1::MeasureGpuResponse* response) {
  v1::GpuRequest passed;
  *passed.mutable_measure_gpu() = *request;
  return PassOn(context, AddressOf(request->key(), request->rank()), std::move(passed),
                [response](auto& answer) { response->Swap(answer.mutable_measured()); });
}

grpc::ServerUnaryReactor* CommunicatorService::StopCommunicator(
    grpc::CallbackServerContext* context, const v1::StopCommunicatorRequest* request,
    v1::StopCommunicatorResponse* /*response*/) {
  v1::GpuRequest passed;
  *passed.mutable_stop_communicator() = *request;
  return PassOn(context, AddressOf(request->key(), request->rank()), std::move(passed),
                [](auto& /*answer*/) {});
}

}  // namespace crossmesh
