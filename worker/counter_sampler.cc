#include "worker/counter_sampler.h"

#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kBusyInterval = absl::Milliseconds(100);
constexpr absl::Duration kIdleInterval = absl::Seconds(1);

}  // namespace

void CounterSampler::Start() { Sample(); }

void CounterSampler::Sample() {
  const ExecutorCounters now = ports_.executor.counters();
  const bool moved = RecordCounters(now);
  RecordMemory(now);
  last_ = now;
  ports_.data.RunAfter(moved ? kBusyInterval : kIdleInterval, [this] { Sample(); });
}

bool CounterSampler::RecordCounters(const ExecutorCounters& now) {
  bool moved = false;
  for (const LinkBytes& link : now.links) {
    const LinkBytes& before = last_.At(link.link);
    const int64_t sent = link.sent - before.sent;
    const int64_t received = link.received - before.received;
    if (sent == 0 && received == 0) continue;
    moved = true;
    const auto label = FindTransportLink(ports_.transport.name(), link.link);
    if (label.has_value()) ports_.metrics.Transferred(*label, sent, received);
  }
  const int64_t copied = now.copied_bytes - last_.copied_bytes;
  // A copy inside the worker is sent and received here.
  if (copied > 0) ports_.metrics.Transferred(TransportLink::kInprocessLocal, copied, copied);
  for (int64_t i = last_.stalls; i < now.stalls; ++i) ports_.metrics.ChannelStalled(link_);
  for (int64_t i = last_.checksum_failures; i < now.checksum_failures; ++i) {
    ports_.metrics.ChecksumFailed(link_);
  }
  moved |= copied > 0;
  if (moved) ports_.metrics.SetLastProgress(ports_.clock.Now());
  return moved;
}

void CounterSampler::RecordMemory(const ExecutorCounters& now) {
  ports_.metrics.SetStagingBytes(now.staging_bytes_used, staging_bytes_);
  int64_t resident = 0;
  int64_t receiving = 0;
  for (const StorageStatus& storage : ports_.storages.List()) {
    if (storage.state == StorageState::kReady) resident += storage.bytes;
    if (storage.writing) receiving += storage.bytes;
  }
  ports_.metrics.SetTensorBytes(resident, receiving);
}

}  // namespace crossmesh
