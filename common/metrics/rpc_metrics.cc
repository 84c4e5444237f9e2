#include "common/metrics/rpc_metrics.h"

namespace crossmesh {
RpcMetrics::RpcMetrics(std::span<const RpcMethod> methods)
    : started_(metrics_, metric::kRpcStarted, MethodLabels(methods)),
      handled_(metrics_, metric::kRpcHandled, MethodLabels(methods), OneOf("grpc_code", kRpcCodes)),
      seconds_(metrics_, metric::kRpcSeconds, metric::kLatencyBuckets, MethodLabels(methods)),
      in_flight_(metrics_, metric::kRpcInFlight, MethodLabels(methods)),
      refused_(metrics_, metric::kConnectionsRefused, OneOf("reason", kConnectionRefusals)) {
  for (const RpcMethod& method : methods) {
    places_.emplace(std::pair(method.service, method.method), places_.size());
  }
}

std::optional<size_t> RpcMetrics::Find(absl::string_view service, absl::string_view method) const {
  const auto found = places_.find({service, method});
  if (found == places_.end()) return std::nullopt;
  return found->second;
}

void RpcMetrics::CallStarted(absl::string_view service, absl::string_view method) {
  const std::optional<size_t> place = Find(service, method);
  if (!place.has_value()) return;
  started_.Increment(*place);
  in_flight_.Add(1, *place);
}

void RpcMetrics::CallEnded(absl::string_view service, absl::string_view method,
                           absl::StatusCode code, absl::Duration duration) {
  const std::optional<size_t> place = Find(service, method);
  if (!place.has_value()) return;
  handled_.Increment(*place, code);
  seconds_.Observe(duration, *place);
  in_flight_.Add(-1, *place);
}

}  // namespace crossmesh
