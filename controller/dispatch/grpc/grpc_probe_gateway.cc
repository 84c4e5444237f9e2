#include "controller/dispatch/grpc/grpc_probe_gateway.h"

#include "common/wire/time_codec.h"

#include <functional>
#include <utility>

namespace crossmesh {
namespace {

using Probes = v1::ProbeService::StubInterface::async_interface;

constexpr absl::Duration kOpenTime = absl::Seconds(5);
// Beside the time that the probe takes: more than the worker gives itself.
constexpr absl::Duration kRunTime = absl::Seconds(8);

}  // namespace

void GrpcProbeGateway::Open(const std::string& worker_address, v1::OpenProbeRequest request,
                            OnOpened on_opened) {
  calls_.Start<v1::OpenProbeResponse>(
      {.address = worker_address, .method = &Probes::OpenProbe, .limit = kOpenTime},
      std::move(request), std::move(on_opened), std::identity());
}

void GrpcProbeGateway::Run(const std::string& worker_address, v1::RunProbeRequest request,
                           OnResult on_result) {
  const absl::Duration time = FromProto(request.time()).value_or(absl::ZeroDuration());
  calls_.Start<v1::RunProbeResponse>(
      {.address = worker_address, .method = &Probes::RunProbe, .limit = time + kRunTime},
      std::move(request), std::move(on_result), std::identity());
}

}  // namespace crossmesh
