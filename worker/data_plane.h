#pragma once

#include "common/base/clock.h"
#include "common/metrics/label_set.h"

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

namespace crossmesh {

class EventLoop;
class Executor;
class ReplayRunner;
class StorageTable;
class Transport;
class WorkerMetrics;
struct DataTransportOptions;
struct ExecutorOptions;

// What moves a worker's bytes: its transport, and the executor of parts over it, both on the data
// loop. Thread-compatible; destroyed when the loop has stopped.
class DataPlane {
 public:
  // Before the loop starts; as MakeDataTransport and Executor::Attach say.
  static absl::StatusOr<std::unique_ptr<DataPlane>> Create(EventLoop& data,
                                                           const DataTransportOptions& transport,
                                                           const ExecutorOptions& executor);
  ~DataPlane();

  Transport& transport() { return *transport_; }
  Executor& executor() { return *executor_; }
  ReplayRunner& replays();
  // The fastest that connects this worker to others.
  TransportLink link() const { return link_; }

  struct Sampled {
    const StorageTable& storages;
    const Clock& clock;
    WorkerMetrics& metrics;
  };
  // From now on brings the executor's counters to the metrics: every 100 ms while they move, every
  // second otherwise. All must live until the loop has stopped.
  void StartSampling(const Sampled& sampled);

 private:
  class Sampler;

  DataPlane(EventLoop& data, int64_t staging_bytes);

  EventLoop& data_;
  const int64_t staging_bytes_;
  TransportLink link_{};
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Executor> executor_;  // holds messages of the transport
  std::unique_ptr<Sampler> sampler_;
};

}  // namespace crossmesh
