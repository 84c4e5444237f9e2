#include "worker/service/probe_service.h"

#include "common/base/status_macros.h"
#include "common/rpc/status_codec.h"
#include "common/wire/time_codec.h"
#include "worker/probe/probe_table.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int32_t kPortMax = 65535;

absl::Status CheckBytes(absl::string_view field, const std::string& bytes, size_t expected) {
  if (bytes.size() == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected ", expected, " bytes, found ", bytes.size()));
}

absl::StatusOr<ProbeToken> TokenOf(const std::string& bytes) {
  ProbeToken token = {};
  RETURN_IF_ERROR(CheckBytes("token", bytes, token.size()));
  std::ranges::copy(bytes, token.begin());
  return token;
}

absl::StatusOr<IpEndpoint> EndpointOf(const std::string& ip, int32_t port) {
  IpEndpoint endpoint;
  RETURN_IF_ERROR(CheckBytes("ip", ip, endpoint.ip.size()));
  if (port < 1 || port > kPortMax) {
    return absl::InvalidArgumentError(absl::StrCat("port: expected 1 to 65535, found ", port));
  }
  std::ranges::copy(ip, endpoint.ip.begin());
  endpoint.port = static_cast<uint16_t>(port);
  return endpoint;
}

absl::StatusOr<ProbeOrder> OrderOf(const v1::RunProbeRequest& request) {
  ProbeOrder order = {.interface = request.interface(), .bytes = request.bytes()};
  ASSIGN_OR_RETURN(order.to, EndpointOf(request.ip(), request.port()));
  ASSIGN_OR_RETURN(order.token, TokenOf(request.token()));
  ASSIGN_OR_RETURN(order.time, FromProto(request.time()));
  return order;
}

}  // namespace

grpc::ServerUnaryReactor* ProbeService::OpenProbe(grpc::CallbackServerContext* context,
                                                  const v1::OpenProbeRequest* request,
                                                  v1::OpenProbeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(Open(*request, *response)));
  return reactor;
}

absl::Status ProbeService::Open(const v1::OpenProbeRequest& request,
                                v1::OpenProbeResponse& response) {
  ASSIGN_OR_RETURN(const ProbeToken token, TokenOf(request.token()));
  ASSIGN_OR_RETURN(const absl::Duration time, FromProto(request.time()));
  ASSIGN_OR_RETURN(const IpEndpoint endpoint, probes_.Listen(request.interface(), token, time));
  response.set_ip(std::string(endpoint.ip.begin(), endpoint.ip.end()));
  response.set_port(endpoint.port);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* ProbeService::RunProbe(grpc::CallbackServerContext* context,
                                                 const v1::RunProbeRequest* request,
                                                 v1::RunProbeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<ProbeOrder> order = OrderOf(*request);
  if (!order.ok()) {
    reactor->Finish(ToGrpcStatus(order.status()));
    return reactor;
  }
  probes_.Send(*std::move(order), [=](const absl::StatusOr<ProbeFigures>& figures) {
    // On the thread of the probe; gRPC keeps the response until Finish.
    if (figures.ok()) {
      response->set_received_bytes(figures->report.received_bytes);
      response->set_bytes_per_second(figures->report.bytes_per_second);
      response->set_round_trip_ns(absl::ToInt64Nanoseconds(figures->round_trip));
    }
    reactor->Finish(ToGrpcStatus(figures.status()));
  });
  return reactor;
}

}  // namespace crossmesh
