#include "worker/tasks/task_end_metrics.h"

#include <set>

#include <absl/time/time.h>

namespace crossmesh {
namespace {

RelayKind KindOf(const PreparedPart::Node& node) {
  if (node.root) return RelayKind::kRoot;
  return node.out_count > 0 ? RelayKind::kForward : RelayKind::kLeaf;
}

void RecordPhases(const PhaseSeconds& seconds, WorkerMetrics& metrics) {
  metrics.PhaseTime(TransferPhase::kBind, absl::Seconds(seconds.bind));
  metrics.PhaseTime(TransferPhase::kMove, absl::Seconds(seconds.move));
  metrics.PhaseTime(TransferPhase::kPack, absl::Seconds(seconds.pack));
  metrics.PhaseTime(TransferPhase::kUnpack, absl::Seconds(seconds.unpack));
  metrics.PhaseTime(TransferPhase::kChecksum, absl::Seconds(seconds.checksum));
}

}  // namespace

void RecordTaskEnd(const LaidOutPart& part, const TaskReport& report, TransportLink link,
                   WorkerMetrics& metrics) {
  RecordPhases(report.seconds, metrics);
  std::set<DeviceRank> failed;
  for (const DeviceReport& device : report.devices) {
    if (!device.status.ok()) failed.insert(device.device);
  }
  double all_bytes = 0;
  for (const PreparedPart::Node& node : part.prepared->nodes()) all_bytes += node.bytes();
  const bool aborted = absl::IsCancelled(report.status);
  for (const PreparedPart::Node& node : part.prepared->nodes()) {
    // What became of a root's receivers is theirs to tell.
    const bool succeeded = node.root ? report.status.ok() : !failed.contains(node.device);
    metrics.RelayEnded({.link = link,
                        .kind = KindOf(node),
                        .result = succeeded ? RelayResult::kSucceeded
                                  : aborted ? RelayResult::kAborted
                                            : RelayResult::kFailed,
                        .bytes = node.bytes(),
                        .duration = absl::Seconds(report.seconds.move * node.bytes() / all_bytes)});
  }
}

}  // namespace crossmesh
