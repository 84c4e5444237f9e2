#pragma once

#include "controller/dispatch/grpc/unary_calls.h"
#include "controller/dispatch/probe_gateway.h"
#include "crossmesh/v1/probe_service.grpc.pb.h"

#include <string>

namespace crossmesh {

// Reaches workers' probes over gRPC. Thread-safe; never blocks, but for Stop.
class GrpcProbeGateway final : public ProbeGateway {
 public:
  // `channels` must outlive it.
  explicit GrpcProbeGateway(WorkerChannels& channels) : calls_(channels) {}

  void Open(const std::string& worker_address, v1::OpenProbeRequest request,
            OnOpened on_opened) override;
  void Run(const std::string& worker_address, v1::RunProbeRequest request,
           OnResult on_result) override;

  // As UnaryCalls::Stop.
  void Stop() { calls_.Stop(); }

 private:
  UnaryCalls<v1::ProbeService> calls_;
};

}  // namespace crossmesh
