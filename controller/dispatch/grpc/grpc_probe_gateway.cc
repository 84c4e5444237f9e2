#include "controller/dispatch/grpc/grpc_probe_gateway.h"

#include "common/wire/time_codec.h"

#include <utility>

namespace crossmesh {
namespace {

using Probes = v1::ProbeService::StubInterface::async_interface;

constexpr absl::Duration kOpenTime = absl::Seconds(5);
// Beside the time that the probe takes: more than the worker gives itself.
constexpr absl::Duration kRunTime = absl::Seconds(8);

}  // namespace

void GrpcProbeGateway::Open(const std::string& worker_address, const ProbeOpening& opening,
                            OnOpened on_opened) {
  v1::OpenProbeRequest request;
  request.set_interface(opening.interface);
  request.set_token(opening.token);
  *request.mutable_time() = ToProto(opening.time);
  calls_.Start<v1::OpenProbeResponse>(
      {.address = worker_address, .method = &Probes::OpenProbe, .limit = kOpenTime},
      std::move(request), std::move(on_opened), [](const v1::OpenProbeResponse& response) {
        return ProbeEndpoint{.ip = response.ip(), .port = response.port()};
      });
}

void GrpcProbeGateway::Run(const std::string& worker_address, const ProbeRun& run,
                           OnResult on_result) {
  v1::RunProbeRequest request;
  request.set_interface(run.interface);
  request.set_ip(run.to.ip);
  request.set_port(run.to.port);
  request.set_token(run.token);
  *request.mutable_time() = ToProto(run.time);
  request.set_bytes(run.bytes);
  calls_.Start<v1::RunProbeResponse>(
      {.address = worker_address, .method = &Probes::RunProbe, .limit = run.time + kRunTime},
      std::move(request), std::move(on_result), [](const v1::RunProbeResponse& response) {
        return ProbeResult{.received_bytes = response.received_bytes(),
                           .bytes_per_second = response.bytes_per_second(),
                           .round_trip_ns = response.round_trip_ns()};
      });
}

}  // namespace crossmesh
