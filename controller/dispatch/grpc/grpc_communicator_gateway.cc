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

// Before there is a communicator a rank is a process, then a place in the communicator.
template <typename Request>
Request OfProcess(const CommunicatorRank& at) {
  Request request;
  *request.mutable_rank() = ToProto(at.key.ranks[at.rank]);
  request.set_epoch(at.key.epoch);
  return request;
}
template <typename Request>
Request OfCommunicator(const CommunicatorRank& at) {
  Request request;
  *request.mutable_key() = ToProto(at.key);
  request.set_rank(at.rank);
  return request;
}

}  // namespace

void GrpcCommunicatorGateway::GetPreflight(const std::string& worker_address,
                                           const CommunicatorRank& at, OnPreflight on_preflight) {
  calls_.Start<v1::GetPreflightResponse>(
      {.address = worker_address, .method = &Communicators::GetPreflight, .limit = kAnswerTime},
      OfProcess<v1::GetPreflightRequest>(at), std::move(on_preflight),
      [](const v1::GetPreflightResponse& response) { return FromProto(response.report()); });
}

void GrpcCommunicatorGateway::MintId(const std::string& worker_address, const CommunicatorRank& at,
                                     OnMinted on_minted) {
  calls_.Start<v1::MintCommunicatorIdResponse>(
      {.address = worker_address,
       .method = &Communicators::MintCommunicatorId,
       .limit = kAnswerTime},
      OfProcess<v1::MintCommunicatorIdRequest>(at), std::move(on_minted),
      [](const v1::MintCommunicatorIdResponse& response) { return response.id(); });
}

void GrpcCommunicatorGateway::Create(const std::string& worker_address,
                                     const CommunicatorCreation& creation, OnCreated on_created) {
  auto request = OfCommunicator<v1::CreateCommunicatorRequest>(creation.at);
  request.set_ticket(creation.ticket);
  request.set_id(creation.id);
  *request.mutable_timeout() = ToProto(creation.timeout);
  calls_.Start<v1::CreateCommunicatorResponse>(
      {.address = worker_address,
       .method = &Communicators::CreateCommunicator,
       .limit = creation.timeout + kEndTime},
      std::move(request), std::move(on_created),
      [](const v1::CreateCommunicatorResponse& response) { return response.size_bytes(); });
}

void GrpcCommunicatorGateway::Measure(const std::string& worker_address, const CommunicatorRank& at,
                                      absl::Duration timeout, OnMeasured on_measured) {
  auto request = OfCommunicator<v1::MeasureGpuRequest>(at);
  *request.mutable_timeout() = ToProto(timeout);
  calls_.Start<v1::MeasureGpuResponse>(
      {.address = worker_address,
       .method = &Communicators::MeasureGpu,
       .limit = timeout + kEndTime},
      std::move(request), std::move(on_measured),
      [](const v1::MeasureGpuResponse& response) { return response; });
}

void GrpcCommunicatorGateway::Destroy(const std::string& worker_address,
                                      const CommunicatorDestruction& destruction, OnGone on_gone) {
  auto request = OfCommunicator<v1::DestroyCommunicatorRequest>(destruction.at);
  request.set_ticket(destruction.ticket);
  *request.mutable_timeout() = ToProto(destruction.timeout);
  calls_.Start<v1::DestroyCommunicatorResponse>(
      {.address = worker_address,
       .method = &Communicators::DestroyCommunicator,
       .limit = destruction.timeout + kEndTime},
      std::move(request), std::move(on_gone),
      [](const v1::DestroyCommunicatorResponse& /*response*/) { return absl::OkStatus(); });
}

void GrpcCommunicatorGateway::Stop(const std::string& worker_address, const CommunicatorRank& at,
                                   const std::string& reason, OnGone on_gone) {
  auto request = OfCommunicator<v1::StopCommunicatorRequest>(at);
  request.set_reason(reason);
  calls_.Start<v1::StopCommunicatorResponse>(
      {.address = worker_address, .method = &Communicators::StopCommunicator, .limit = kEndTime},
      std::move(request), std::move(on_gone),
      [](const v1::StopCommunicatorResponse& /*response*/) { return absl::OkStatus(); });
}

}  // namespace crossmesh
