#include "worker/data_plane.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/metrics/worker_metrics.h"
#include "worker/data_transport.h"
#include "worker/executor/executor.h"
#include "worker/memory/storage_table.h"
#include "worker/transport/transport.h"

#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kBusyInterval = absl::Milliseconds(100);
constexpr absl::Duration kIdleInterval = absl::Seconds(1);

}  // namespace

// Confined to the loop, apart from construction.
class DataPlane::Sampler {
 public:
  Sampler(DataPlane& plane, const Sampled& sampled) : plane_(plane), sampled_(sampled) {}

  void Sample() {
    const ExecutorCounters now = plane_.executor_->counters();
    const bool moved = RecordCounters(now);
    RecordMemory(now);
    last_ = now;
    plane_.data_.RunAfter(moved ? kBusyInterval : kIdleInterval, [this] { Sample(); });
  }

 private:
  // Whether bytes have moved since the last time.
  bool RecordCounters(const ExecutorCounters& now);
  void RecordMemory(const ExecutorCounters& now);

  DataPlane& plane_;
  const Sampled sampled_;
  ExecutorCounters last_;
};

bool DataPlane::Sampler::RecordCounters(const ExecutorCounters& now) {
  WorkerMetrics& metrics = sampled_.metrics;
  bool moved = false;
  for (const LinkBytes& link : now.links) {
    const LinkBytes& before = last_.At(link.link);
    const int64_t sent = link.sent - before.sent;
    const int64_t received = link.received - before.received;
    if (sent == 0 && received == 0) continue;
    moved = true;
    const auto label = FindTransportLink(plane_.transport_->name(), link.link);
    if (label.has_value()) metrics.Transferred(*label, sent, received);
  }
  const int64_t copied = now.copied_bytes - last_.copied_bytes;
  // A copy inside the worker is sent and received here.
  if (copied > 0) metrics.Transferred(TransportLink::kInprocessLocal, copied, copied);
  // The executor does not count these by link: they are given to the fastest.
  for (int64_t i = last_.stalls; i < now.stalls; ++i) metrics.ChannelStalled(plane_.link_);
  for (int64_t i = last_.checksum_failures; i < now.checksum_failures; ++i) {
    metrics.ChecksumFailed(plane_.link_);
  }
  moved |= copied > 0;
  if (moved) metrics.SetLastProgress(sampled_.clock.Now());
  return moved;
}

void DataPlane::Sampler::RecordMemory(const ExecutorCounters& now) {
  sampled_.metrics.SetStagingBytes(now.staging_bytes_used, plane_.staging_bytes_);
  int64_t resident = 0;
  int64_t receiving = 0;
  for (const StorageStatus& storage : sampled_.storages.List()) {
    if (storage.state == StorageState::kReady) resident += storage.bytes;
    if (storage.writing) receiving += storage.bytes;
  }
  sampled_.metrics.SetTensorBytes(resident, receiving);
}

DataPlane::DataPlane(EventLoop& data, int64_t staging_bytes)
    : data_(data), staging_bytes_(staging_bytes) {}

DataPlane::~DataPlane() = default;

absl::StatusOr<std::unique_ptr<DataPlane>> DataPlane::Create(EventLoop& data,
                                                             const DataTransportOptions& transport,
                                                             const ExecutorOptions& executor) {
  std::unique_ptr<DataPlane> plane(new DataPlane(data, executor.staging_bytes));
  plane->executor_ = Executor::Create(data, executor);
  ASSIGN_OR_RETURN(plane->transport_, MakeDataTransport(transport, *plane->executor_));
  RETURN_IF_ERROR(plane->executor_->Attach(*plane->transport_));
  data.AddSource(*plane->transport_);
  plane->link_ =
      *FindTransportLink(plane->transport_->name(), transport.shared_memory ? "shm" : "tcp");
  return plane;
}

ReplayRunner& DataPlane::replays() { return executor_->replays(); }

void DataPlane::StartSampling(const Sampled& sampled) {
  sampler_ = std::make_unique<Sampler>(*this, sampled);
  data_.Post([this] { sampler_->Sample(); });
}

}  // namespace crossmesh
