#pragma once

#include "controller/dispatch/communicator_gateway.h"
#include "controller/dispatch/grpc/unary_calls.h"
#include "crossmesh/v1/communicator_service.grpc.pb.h"

#include <string>

namespace crossmesh {

// Reaches the communicators of workers' GPUs over gRPC. Thread-safe; never blocks, but for Stop.
// InvalidArgument in a callback: a worker's answer was malformed.
class GrpcCommunicatorGateway final : public CommunicatorGateway {
 public:
  // `channels` must outlive it.
  explicit GrpcCommunicatorGateway(WorkerChannels& channels) : calls_(channels) {}

  void GetPreflight(const std::string& worker_address, const CommunicatorRank& at,
                    OnPreflight on_preflight) override;
  void MintId(const std::string& worker_address, const CommunicatorRank& at,
              OnMinted on_minted) override;
  void Create(const std::string& worker_address, const CommunicatorCreation& creation,
              OnCreated on_created) override;
  void Measure(const std::string& worker_address, const CommunicatorRank& at,
               absl::Duration timeout, OnMeasured on_measured) override;
  void Destroy(const std::string& worker_address, const CommunicatorDestruction& destruction,
               OnGone on_gone) override;
  void Stop(const std::string& worker_address, const CommunicatorRank& at,
            const std::string& reason, OnGone on_gone) override;

  // As UnaryCalls::Stop.
  void StopCalls() { calls_.Stop(); }

 private:
  UnaryCalls<v1::CommunicatorService> calls_;
};

}  // namespace crossmesh
