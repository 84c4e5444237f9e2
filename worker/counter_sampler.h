#pragma once

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/metrics/worker_metrics.h"
#include "worker/executor/executor.h"
#include "worker/memory/storage_table.h"
#include "worker/transport/transport.h"

#include <cstdint>

namespace crossmesh {

// Brings the executor's counters to the metrics: every 100 ms while they move, every second
// otherwise. Confined to the data loop.
class CounterSampler {
 public:
  struct Ports {
    EventLoop& data;
    const Transport& transport;
    const Executor& executor;
    const StorageTable& storages;
    const Clock& clock;
    WorkerMetrics& metrics;
  };

  // `link`: the fastest that connects this worker to others, to which what is not counted by link
  // is given. `staging_bytes`: all there is.
  CounterSampler(Ports ports, TransportLink link, int64_t staging_bytes)
      : ports_(ports), link_(link), staging_bytes_(staging_bytes) {}

  // On the loop, or before it starts.
  void Start();

 private:
  void Sample();
  // Whether bytes have moved since the last time.
  bool RecordCounters(const ExecutorCounters& now);
  void RecordMemory(const ExecutorCounters& now);

  const Ports ports_;
  const TransportLink link_;
  const int64_t staging_bytes_;
  ExecutorCounters last_;
};

}  // namespace crossmesh
