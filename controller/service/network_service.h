#pragma once

#include "common/base/clock.h"
#include "controller/catalog/catalog.h"
#include "crossmesh/v1/network_service.grpc.pb.h"

namespace crossmesh {

// The current description of the network. Thread-safe.
class NetworkService final : public v1::NetworkService::CallbackService {
 public:
  NetworkService(Catalog& catalog, const Clock& clock) : catalog_(catalog), clock_(clock) {}

  grpc::ServerUnaryReactor* GetNetwork(grpc::CallbackServerContext* context,
                                       const v1::GetNetworkRequest* request,
                                       v1::GetNetworkResponse* response) override;
  grpc::ServerUnaryReactor* SetNetwork(grpc::CallbackServerContext* context,
                                       const v1::SetNetworkRequest* request,
                                       v1::SetNetworkResponse* response) override;

 private:
  absl::Status Get(v1::GetNetworkResponse& response);
  absl::Status Set(const v1::SetNetworkRequest& request, v1::SetNetworkResponse& response);

  Catalog& catalog_;
  const Clock& clock_;
};

}  // namespace crossmesh
