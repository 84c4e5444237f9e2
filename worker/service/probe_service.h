#pragma once

#include "crossmesh/v1/probe_service.grpc.pb.h"

#include <absl/status/status.h>
#include <grpcpp/support/server_callback.h>

namespace crossmesh {

class ProbeTable;

// Serves probes of this worker's links. Thread-safe.
class ProbeService final : public v1::ProbeService::CallbackService {
 public:
  // The table outlives the server, and is stopped before it.
  explicit ProbeService(ProbeTable& probes) : probes_(probes) {}

  grpc::ServerUnaryReactor* OpenProbe(grpc::CallbackServerContext* context,
                                      const v1::OpenProbeRequest* request,
                                      v1::OpenProbeResponse* response) override;
  grpc::ServerUnaryReactor* RunProbe(grpc::CallbackServerContext* context,
                                     const v1::RunProbeRequest* request,
                                     v1::RunProbeResponse* response) override;

 private:
  absl::Status Open(const v1::OpenProbeRequest& request, v1::OpenProbeResponse& response);

  ProbeTable& probes_;
};

}  // namespace crossmesh
