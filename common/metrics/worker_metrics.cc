#include "common/metrics/worker_metrics.h"

#include <cstddef>

namespace crossmesh {
namespace {

// The place in kLinks.
size_t LinkOf(TransportLink link) {
  return *FindLabel(kLinks, kTransportLinks[static_cast<size_t>(link)][1]);
}

}  // namespace

WorkerMetrics::WorkerMetrics() = default;

void WorkerMetrics::Transferred(TransportLink link, int64_t sent_bytes, int64_t received_bytes) {
  bytes_.Add(static_cast<double>(sent_bytes), link, 0);
  bytes_.Add(static_cast<double>(received_bytes), link, 1);
}

void WorkerMetrics::RelayEnded(const RelayFacts& relay) {
  relays_.Increment(relay.kind, relay.result);
  if (relay.result != RelayResult::kSucceeded) return;
  relay_seconds_.Observe(relay.duration, TransportOf(relay.link));
  const double seconds = absl::ToDoubleSeconds(relay.duration);
  if (seconds > 0) {
    relay_throughput_.Observe(static_cast<double>(relay.bytes) / seconds, LinkOf(relay.link));
  }
}

void WorkerMetrics::SetStagingBytes(int64_t used, int64_t limit) { SetBoth(staging_, used, limit); }

void WorkerMetrics::SetGpus(int64_t up, int64_t down) { SetBoth(gpus_, up, down); }

void WorkerMetrics::SetTensorBytes(int64_t resident, int64_t receiving, int64_t shadows) {
  SetBoth(tensors_, resident, receiving);
  tensors_.Set(shadows, 2);
}

void WorkerMetrics::SetStagingPeak(int64_t send, int64_t receive) {
  SetBoth(staging_peak_, send, receive);
}

void WorkerMetrics::SetArrayBytes(int64_t now, int64_t peak) {
  tensors_.Set(now, 3);
  array_peak_.Set(peak);
}

void WorkerMetrics::SetBoth(Gauges& gauges, int64_t first, int64_t second) {
  gauges.Set(first, 0);
  gauges.Set(second, 1);
}

}  // namespace crossmesh
