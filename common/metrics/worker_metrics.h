#pragma once

#include "common/metrics/label_set.h"
#include "common/metrics/metric_family.h"

#include <cstddef>
#include <cstdint>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What a worker records. Not for a path taken per chunk: give totals per relay, per task, or every
// 100 ms. Thread-safe; never blocks.
class WorkerMetrics {
 public:
  struct RelayFacts {
    TransportLink link = TransportLink::kInprocessLocal;
    RelayKind kind = RelayKind::kRoot;
    RelayResult result = RelayResult::kSucceeded;
    int64_t bytes = 0;
    absl::Duration duration;  // from its first chunk to its last
  };

  WorkerMetrics();

  const MetricSet& metrics() const { return metrics_; }

  void SetRegistered(bool registered) { registered_.Set(registered ? 1 : 0); }
  void SessionReconnect(ReconnectReason reason) { reconnects_.Increment(reason); }
  void CommandRejected(CommandRejection reason) { rejections_.Increment(reason); }

  void Transferred(TransportLink link, int64_t sent_bytes, int64_t received_bytes);
  // Its result counts always, its time and throughput when it succeeded.
  void RelayEnded(const RelayFacts& relay);
  void SetRelaysInProgress(TransportKind transport, int64_t relays) {
    relays_in_progress_.Set(relays, transport);
  }
  // Time that tasks spent in a phase; phases of one task overlap.
  void PhaseTime(TransferPhase phase, absl::Duration duration) {
    phase_seconds_.Add(absl::ToDoubleSeconds(duration), phase);
  }
  void SetLastProgress(absl::Time time) {
    last_progress_.Set(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
  }

  void ChannelStalled(TransportLink link) { stalls_.Increment(link); }
  void ChecksumFailed(TransportLink link) { checksum_failures_.Increment(link); }

  void SetStagingBytes(int64_t used, int64_t limit);
  // The most that was in use at a time.
  void SetStagingPeak(int64_t send, int64_t receive);
  // Processes of GPUs that can be used, and that cannot.
  void SetGpus(int64_t up, int64_t down);
  // One that was up; another takes its place.
  void GpuProcessLost() { gpu_processes_lost_.Increment(); }

  // Of storages that nothing writes; in memory that is being written; in shadows that wait for the
  // next version.
  void SetTensorBytes(int64_t resident, int64_t receiving, int64_t shadows);
  // Steps of courses that have moved, of the kind with this place in kStepKindLabels; summands that
  // were reduced.
  void CourseSteps(size_t kind, int64_t steps) {
    course_steps_.Add(static_cast<double>(steps), kind);
  }
  void Reduced(int64_t bytes) { reduced_bytes_.Add(static_cast<double>(bytes)); }
  // Of courses: what lies between steps now, and the most that did at a time.
  void SetArrayBytes(int64_t now, int64_t peak);

 private:
  static constexpr absl::string_view kGpuStates[] = {"up", "down"};
  static constexpr absl::string_view kStagingStates[] = {"used", "limit"};
  static constexpr absl::string_view kTensorStates[] = {"resident", "receiving", "shadow", "array"};

  // Both series of a pair of states.
  static void SetBoth(Gauges& gauges, int64_t first, int64_t second);

  MetricSet metrics_;
  Gauges registered_{metrics_, metric::kRegistered};
  Counters reconnects_{metrics_, metric::kSessionReconnects, OneOf("reason", kReconnectReasons)};
  Counters rejections_{metrics_, metric::kCommandsRejected, OneOf("reason", kCommandRejections)};
  Counters bytes_{metrics_, metric::kTransferBytes, TransportLinkLabels(),
                  OneOf("direction", kDirections)};
  Counters relays_{metrics_, metric::kRelays, OneOf("kind", kRelayKinds),
                   OneOf("result", kRelayResults)};
  Histograms relay_seconds_{metrics_, metric::kRelaySeconds, metric::kTransferBuckets,
                            OneOf("transport", kTransports)};
  Histograms relay_throughput_{metrics_, metric::kRelayThroughput, metric::kThroughputBuckets,
                               OneOf("link", kLinks)};
  Gauges relays_in_progress_{metrics_, metric::kRelaysInProgress, OneOf("transport", kTransports)};
  Counters phase_seconds_{metrics_, metric::kPhaseSeconds, OneOf("phase", kTransferPhases)};
  Gauges last_progress_{metrics_, metric::kLastProgress};
  Counters stalls_{metrics_, metric::kChannelStalls, TransportLinkLabels()};
  Counters checksum_failures_{metrics_, metric::kChecksumFailures, TransportLinkLabels()};
  Gauges gpus_{metrics_, metric::kGpus, OneOf("state", kGpuStates)};
  Counters gpu_processes_lost_{metrics_, metric::kGpuProcessesLost};
  Counters course_steps_{metrics_, metric::kCourseSteps, OneOf("kind", kStepKindLabels)};
  Counters reduced_bytes_{metrics_, metric::kReducedBytes};
  Gauges staging_{metrics_, metric::kStagingBytes, OneOf("state", kStagingStates)};
  Gauges staging_peak_{metrics_, metric::kStagingPeakBytes, OneOf("direction", kDirections)};
  Gauges tensors_{metrics_, metric::kTensorBytes, OneOf("state", kTensorStates)};
  Gauges array_peak_{metrics_, metric::kArrayPeakBytes};
};

}  // namespace crossmesh
