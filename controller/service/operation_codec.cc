#include "controller/service/operation_codec.h"

#include "common/plan/plan_warnings.h"
#include "common/wire/plan_codec.h"
#include "common/wire/time_codec.h"

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
  switch (state) {
    case ReplicaState::kReceiving:
      return v1::REPLICA_STATE_RECEIVING;
    case ReplicaState::kCommitted:
      return v1::REPLICA_STATE_COMMITTED;
    case ReplicaState::kFailed:
      return v1::REPLICA_STATE_FAILED;
  }
  return v1::REPLICA_STATE_UNSPECIFIED;
}

void AddWorkers(const OperationReport& report, v1::OperationReport& out) {
  for (const auto& [worker, figures] : report.workers) {
    v1::WorkerReport& entry = *out.add_workers();
    entry.set_worker(worker);
    entry.set_sent_bytes(figures.sent_bytes);
    entry.set_received_bytes(figures.received_bytes);
    entry.set_copied_bytes(figures.copied_bytes);
    entry.set_bind_seconds(figures.bind_seconds);
    entry.set_move_seconds(figures.move_seconds);
    entry.set_pack_seconds(figures.pack_seconds);
    entry.set_unpack_seconds(figures.unpack_seconds);
    entry.set_checksum_seconds(figures.checksum_seconds);
    entry.mutable_gpu_libraries()->Assign(figures.gpu_libraries.begin(),
                                          figures.gpu_libraries.end());
  }
}

// A link is busy no longer than the operation, so one that is falls short of what was predicted:
// its own rate is less than described, or others use it.
void AddSlowLinks(const OperationReport& report, const PlanFigures& plan,
                  v1::OperationReport& out) {
  if (plan.assumed_rates) return;
  const double seconds_max = kSlowFactor * plan.predicted_seconds + kSlowSeconds;
  std::vector<v1::SlowLink> links;
  for (const auto& [worker, figures] : report.workers) {
    for (const PeerFigures& link : figures.links) {
      if (link.busy_seconds <= seconds_max) continue;
      v1::SlowLink& slow = links.emplace_back();
      slow.set_from(worker);
      slow.set_to(link.peer);
      slow.set_sent_bytes(link.sent_bytes);
      slow.set_busy_seconds(link.busy_seconds);
    }
  }
  std::ranges::stable_sort(links, std::greater(), &v1::SlowLink::busy_seconds);
  for (v1::SlowLink& link : links) *out.add_slow_links() = std::move(link);
}

void AddPlan(const PlannedReshard& planned, v1::OperationReport& out) {
  const PlanFigures& figures = planned.plan().figures();
  out.set_network_bytes(figures.network_bytes);
  out.set_least_network_bytes(figures.least_network_bytes);
  out.set_busiest_host_bytes(figures.busiest_host_bytes);
  out.set_busiest_host(figures.busiest_host);
  out.set_bound_seconds(figures.bound.seconds);
  out.set_predicted_seconds(figures.predicted_seconds);
  for (std::string& warning : PlanWarnings(planned.tensors(), planned.request().topology)) {
    out.add_warnings(std::move(warning));
  }
  *out.mutable_broadcast_groups() = ToProto(figures.broadcasts);
}

v1::OperationReport ReportOf(const OperationSnapshot& snapshot) {
  const OperationReport& report = *snapshot.report;
  v1::OperationReport out;
  if (snapshot.planned != nullptr) AddPlan(*snapshot.planned, out);
  out.set_destination_bytes(report.destination_bytes);
  out.set_plan_seconds(absl::ToDoubleSeconds(report.plan));
  out.set_dispatch_seconds(absl::ToDoubleSeconds(report.dispatch));
  out.set_commit_seconds(absl::ToDoubleSeconds(report.commit));
  out.set_total_seconds(absl::ToDoubleSeconds(report.total));
  out.set_first_byte_seconds(absl::ToDoubleSeconds(report.first_byte));
  out.set_plan_cached(report.plan_cached);
  const double transfer = absl::ToDoubleSeconds(report.transfer);
  out.set_transfer_seconds(transfer);
  if (transfer > 0) {
    out.set_throughput_bytes_per_second(static_cast<double>(report.destination_bytes) / transfer);
    out.set_efficiency_ratio(out.bound_seconds() / transfer);
  }
  AddWorkers(report, out);
  if (snapshot.planned != nullptr) {
    AddSlowLinks(report, snapshot.planned->plan().figures(), out);
  }
  return out;
}

void AddReplicas(const OperationSnapshot& snapshot, v1::Operation& out) {
  for (size_t i = 0; i < snapshot.replicas.size(); ++i) {
    const OperationSnapshot::Replica& replica = snapshot.replicas[i];
    v1::Replica& entry = *out.add_replicas();
    entry.set_index(static_cast<int32_t>(i));
    entry.set_state(ToProto(replica.state));
    if (snapshot.planned != nullptr) entry.set_devices(snapshot.planned->replicas()[i].devices);
    entry.set_error(std::string(replica.error.message()));
  }
}

}  // namespace

v1::OperationState ToProto(OperationState state) {
  switch (state) {
    case OperationState::kPreparing:
      return v1::OPERATION_STATE_PREPARING;
    case OperationState::kRunning:
      return v1::OPERATION_STATE_RUNNING;
    case OperationState::kVerifying:
      return v1::OPERATION_STATE_VERIFYING;
    case OperationState::kCommitted:
      return v1::OPERATION_STATE_COMMITTED;
    case OperationState::kPartial:
      return v1::OPERATION_STATE_PARTIAL;
    case OperationState::kFailed:
      return v1::OPERATION_STATE_FAILED;
    case OperationState::kCancelled:
      return v1::OPERATION_STATE_CANCELLED;
  }
  return v1::OPERATION_STATE_UNSPECIFIED;
}

v1::Operation ToProto(const OperationSnapshot& snapshot) {
  v1::Operation out;
  out.set_id(snapshot.id);
  out.set_state(ToProto(snapshot.state));
  out.set_attempt(static_cast<int32_t>(snapshot.attempt));
  out.set_moved_bytes(snapshot.moved_bytes);
  if (snapshot.planned != nullptr) {
    out.set_plan_id(snapshot.planned->plan().id().ToString());
    out.set_total_bytes(snapshot.planned->proof().destination_bytes);
  }
  AddReplicas(snapshot, out);
  out.set_error(std::string(snapshot.error.message()));
  out.set_error_code(static_cast<int32_t>(snapshot.error.code()));
  if (snapshot.report.has_value()) *out.mutable_report() = ReportOf(snapshot);
  *out.mutable_create_time() = ToProto(snapshot.create_time);
  if (IsTerminal(snapshot.state)) *out.mutable_end_time() = ToProto(snapshot.end_time);
  out.set_revision(snapshot.revision);
  if (snapshot.deadline > absl::ZeroDuration()) {
    *out.mutable_deadline() = ToProto(snapshot.deadline);
  }
  return out;
}

v1::ReshardSpec SpecToShow(const v1::ReshardSpec& spec) {
  v1::ReshardSpec shown = spec;
  if (shown.has_inline_manifest()) shown.mutable_inline_manifest()->clear_tensors();
  return shown;
}

}  // namespace crossmesh
