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

void ControllerMetrics::SetStore(const StoreFacts& store) {
  store_revision_.Set(store.revision);
  store_size_.Set(store.database_bytes, StoreFile::kMain);
  store_size_.Set(store.log_bytes, StoreFile::kLog);
  store_commits_kept_.Set(store.commits_kept);
  store_kept_bytes_.Set(store.kept_bytes);
  store_free_.Set(store.free_bytes);
  store_read_only_.Set(store.is_read_only ? 1 : 0);
  store_verified_.Set(absl::ToUnixSeconds(store.verified_at));
  store_backed_up_.Set(absl::ToUnixSeconds(store.backed_up_at));
  store_corruptions_.Add(static_cast<double>(store.corruptions) - store_corruptions_.value(0));
  store_backup_failures_.Add(static_cast<double>(store.backup_failures) -
                             store_backup_failures_.value(0));
}

}  // namespace crossmesh
