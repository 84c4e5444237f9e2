#include "controller/dispatch/operation_message.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// A link fell short when it was busy for so much longer than the whole operation was predicted to
// take; less is noise.
constexpr double kSlowFactor = 1.25;
constexpr double kSlowSeconds = 0.05;

v1::ReplicaState ToProto(ReplicaState state) {
  // In the order of ReplicaState.
  constexpr v1::ReplicaState kValues[] = {v1::REPLICA_STATE_RECEIVING, v1::REPLICA_STATE_COMMITTED,
                                          v1::REPLICA_STATE_FAILED};
  static_assert(std::size(kValues) == static_cast<size_t>(ReplicaState::kFailed) + 1);
  return kValues[static_cast<size_t>(state)];
}

OperationResult ResultOf(OperationState state) {
  switch (state) {
    case OperationState::kCommitted:
      return OperationResult::kCommitted;
    case OperationState::kPartial:
      return OperationResult::kPartial;
    case OperationState::kCancelled:
      return OperationResult::kCancelled;
    case OperationState::kPreparing:
    case OperationState::kRunning:
    case OperationState::kVerifying:
    case OperationState::kFailed:
      break;
  }
  return OperationResult::kFailed;
}

}  // namespace

// A link is busy no longer than the operation, so one that is falls short of what was predicted:
// its own rate is less than described, or others use it.
void AddSlowLinks(const OperationPlan& plan, v1::OperationReport& report) {
  if (plan.assumed_rates) return;
  const double seconds_max = kSlowFactor * plan.report.predicted_seconds() + kSlowSeconds;
  std::vector<v1::SlowLink> links;
  for (const v1::TaskReport& task : report.workers()) {
    for (const v1::TaskReport::Link& link : task.links()) {
      if (link.busy_seconds() <= seconds_max) continue;
      v1::SlowLink& slow = links.emplace_back();
      slow.set_from(task.worker());
      slow.set_to(link.peer());
      slow.set_sent_bytes(link.sent_bytes());
      slow.set_busy_seconds(link.busy_seconds());
    }
  }
  std::ranges::stable_sort(links, std::greater(), &v1::SlowLink::busy_seconds);
  for (v1::SlowLink& link : links) *report.add_slow_links() = std::move(link);
}

int64_t CommittedBytes(std::span<const OperationMachine::Replica> replicas,
                       const OperationPlan& plan) {
  int64_t bytes = 0;
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    if (replicas[i].state == ReplicaState::kCommitted) bytes += plan.replicas[i].bytes;
  }
  return bytes;
}

void SetReplicas(std::span<const OperationMachine::Replica> replicas, const OperationPlan* plan,
                 v1::Operation& operation) {
  operation.clear_replicas();
  for (size_t i = 0; i < replicas.size(); ++i) {
    v1::Replica& replica = *operation.add_replicas();
    replica.set_index(static_cast<int32_t>(i));
    replica.set_state(ToProto(replicas[i].state));
    if (plan != nullptr) replica.set_devices(plan->replicas[i].devices);
    replica.set_error(std::string(replicas[i].error.message()));
  }
}

v1::OperationState ToProto(OperationState state) {
  // In the order of OperationState.
  constexpr v1::OperationState kValues[] = {
      v1::OPERATION_STATE_PREPARING, v1::OPERATION_STATE_RUNNING, v1::OPERATION_STATE_VERIFYING,
      v1::OPERATION_STATE_COMMITTED, v1::OPERATION_STATE_PARTIAL, v1::OPERATION_STATE_FAILED,
      v1::OPERATION_STATE_CANCELLED};
  static_assert(std::size(kValues) == static_cast<size_t>(OperationState::kCancelled) + 1);
  return kValues[static_cast<size_t>(state)];
}

ControllerMetrics::OperationFacts FactsOf(OperationState state, const v1::OperationReport& report) {
  ControllerMetrics::OperationFacts facts{.result = ResultOf(state),
                                          .duration = absl::Seconds(report.total_seconds()),
                                          .destination_bytes = report.destination_bytes()};
  if (state == OperationState::kCommitted) {
    facts.transfer = absl::Seconds(report.transfer_seconds());
    facts.bound = absl::Seconds(report.bound_seconds());
  }
  return facts;
}

}  // namespace crossmesh
