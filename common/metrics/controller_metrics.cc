#include "common/metrics/controller_metrics.h"

#include <optional>

namespace crossmesh {

ControllerMetrics::ControllerMetrics() = default;

void ControllerMetrics::PlanComputed(absl::string_view strategy, absl::Duration duration,
                                     int64_t relays) {
  plan_relays_.Observe(static_cast<double>(relays));
  if (const auto s = FindLabel(kStrategies, strategy)) plan_seconds_.Observe(duration, *s);
}

void ControllerMetrics::PlanUsed(const PlanFacts& plan) {
  const std::optional<size_t> s = FindLabel(kStrategies, plan.strategy);
  if (!s.has_value()) return;
  plan_bytes_.Add(static_cast<double>(plan.network_bytes), *s);
  plan_least_bytes_.Add(static_cast<double>(plan.least_network_bytes), *s);
}

void ControllerMetrics::OperationEnded(const OperationFacts& operation) {
  const std::optional<size_t> s = FindLabel(kStrategies, operation.strategy);
  if (!s.has_value()) return;
  operations_.Increment(*s, operation.result);
  operation_seconds_.Observe(operation.duration, *s);
  operation_bytes_.Add(static_cast<double>(operation.destination_bytes), *s);
  transfer_seconds_.Add(absl::ToDoubleSeconds(operation.transfer), *s);
  bound_seconds_.Add(absl::ToDoubleSeconds(operation.bound), *s);
}

}  // namespace crossmesh
