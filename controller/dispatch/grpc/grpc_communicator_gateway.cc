#include "controller/dispatch/grpc/grpc_communicator_gateway.h"

#include "common/wire/communicator_codec.h"
#include "common/wire/time_codec.h"

#include <utility>

namespace crossmesh {
namespace {

using Communicators = v1::CommunicatorService::StubInterface::async_interface;

// Without NCCL. The first call of an epoch waits for the end of what earlier ones had made.
constexpr absl::Duration kAnswerTime = absl::Seconds(30);
// Beside the time that an order gives: a worker that ends what is late answers later.
constexpr absl::Duration kEndTime = absl::Seconds(60);

}  // namespace

void GrpcCommunicatorGateway::GetPreflight(const std::string& worker_address,
                                           const CommunicatorRank& at, OnPreflight on_preflight) {
  v1::GetPreflightRequest request;
  *request.mutable_rank() = ToProto(at.key.ranks[at.rank]);
  request.set_epoch(at.key.epoch);
  calls_.Start<v1::GetPreflightRequest, v1::GetPreflightResponse>(
      {.address = worker_address, .method = &Communicators::GetPreflight, .limit = kAnswerTime},
      std::move(request),
      [on_preflight = std::move(on_preflight)](
          const absl::StatusOr<v1::GetPreflightResponse>& response) mutable {
        if (!response.ok()) return on_preflight(response.status());
        on_preflight(FromProto(response->report()));
      });
}

void GrpcCommunicatorGateway::MintId(const std::string& worker_address, const CommunicatorRank& at,
                                     OnMinted on_minted) {
  v1::MintCommunicatorIdRequest request;
  *request.mutable_rank() = ToProto(at.key.ranks[at.rank]);
  request.set_epoch(at.key.epoch);
  calls_.Start<v1::MintCommunicatorIdRequest, v1::MintCommunicatorIdResponse>(
      {.address = worker_address,
       .method = &Communicators::MintCommunicatorId,
       .limit = kAnswerTime},
      std::move(request),
      [on_minted = std::move(on_minted)](
          const absl::StatusOr<v1::MintCommunicatorIdResponse>& response) mutable {
        if (!response.ok()) return on_minted(response.status());
        on_minted(response->id());
      });
}

void GrpcCommunicatorGateway::Create(const std::string& worker_address,
                                     const CommunicatorCreation& creation, OnCreated on_created) {
  v1::CreateCommunicatorRequest request;
  *request.mutable_key() = ToProto(creation.at.key);
  request.set_rank(creation.at.rank);
  request.set_ticket(creation.ticket);
  request.set_id(creation.id);
  *request.mutable_timeout() = ToProto(creation.timeout);
  calls_.Start<v1::CreateCommunicatorRequest, v1::CreateCommunicatorResponse>(
      {.address = worker_address,
       .method = &Communicators::CreateCommunicator,
       .limit = creation.timeout + kEndTime},
      std::move(request),
      [on_created = std::move(on_created)](
          const absl::StatusOr<v1::CreateCommunicatorResponse>& response) mutable {
        if (!response.ok()) return on_created(response.status());
        on_created(response->size_bytes());
      });
}

void GrpcCommunicatorGateway::Destroy(const std::string& worker_address,
                                      const CommunicatorDestruction& destruction, OnGone on_gone) {
  v1::DestroyCommunicatorRequest request;
  *request.mutable_key() = ToProto(destruction.at.key);
  request.set_rank(destruction.at.rank);
  request.set_ticket(destruction.ticket);
  *request.mutable_timeout() = ToProto(destruction.timeout);
  calls_.Start<v1::DestroyCommunicatorRequest, v1::DestroyCommunicatorResponse>(
      {.address = worker_address,
       .method = &Communicators::DestroyCommunicator,
       .limit = destruction.timeout + kEndTime},
      std::move(request),
      [on_gone = std::move(on_gone)](
          const absl::StatusOr<v1::DestroyCommunicatorResponse>& response) mutable {
        on_gone(response.status());
      });
}

void GrpcCommunicatorGateway::Stop(const std::string& worker_address, const CommunicatorRank& at,
                                   const std::string& reason, OnGone on_gone) {
  v1::StopCommunicatorRequest request;
  *request.mutable_key() = ToProto(at.key);
  request.set_rank(at.rank);
  request.set_reason(reason);
  calls_.Start<v1::StopCommunicatorRequest, v1::StopCommunicatorResponse>(
      {.address = worker_address, .method = &Communicators::StopCommunicator, .limit = kEndTime},
      std::move(request),
      [on_gone = std::move(on_gone)](
          const absl::StatusOr<v1::StopCommunicatorResponse>& response) mutable {
        on_gone(response.status());
      });
}

}  // namespace crossmesh
