#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/plan.h"
#include "worker/executor/executor.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/transport/testing/inprocess_fabric.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// What came of running a plan on all workers.
struct MeshOutcome {
  std::vector<TaskReport> reports;                        // by worker
  absl::flat_hash_map<DeviceRank, DeviceReport> devices;  // every destination device
  std::vector<int32_t> worker_of_device;                  // by rank
};

// Workers "w0", "w1", ... without daemons: each an event loop on its own thread, an in-process
// transport, or with NICs one for each, striped, and an executor. For tests of everything that
// makes plans. Thread-compatible.
class MeshRunner {
 public:
  struct Options {
    int32_t workers = 3;
    FaultPlan faults;
    ExecutorOptions executor;
    // Of the workers, in turn. Empty: none, and transports are not striped.
    std::vector<size_t> nics = {};
    // What runs tasks of Run, over a worker's executor. Empty: that itself.
    std::function<std::unique_ptr<TaskRunner>(EventLoop&, Executor&)> make_runner = {};
  };
  struct RunOptions {
    bool checksums = true;
    absl::Duration deadline = absl::Seconds(60);
    absl::Duration stall_limit = absl::Seconds(30);
    uint32_t instances = 1;  // of RunReplays
    // Never starts its task, as if it hung.
    std::optional<int32_t> absent_worker;
    // Called once on the loop of worker 0 right after its start, e.g. to cancel.
    absl::AnyInvocable<void(TaskRunner&, const TaskKey&)> disturb;
  };

  explicit MeshRunner(const Options& options);
  ~MeshRunner();

  int32_t workers() const { return static_cast<int32_t>(workers_.size()); }
  InProcessFabric& fabric() { return fabric_; }
  const std::string& address(int32_t worker) const {
    return workers_[worker]->transport->address();
  }

  // Runs a plan, whose devices belong to workers as given (by rank), between tiles of `memory`.
  // Waits until every worker that is not absent has reported. What Start or CutParts refuse is
  // returned.
  absl::StatusOr<MeshOutcome> Run(const Plan& plan, std::vector<int32_t> worker_of_device,
                                  TileMemory& memory, RunOptions options);
  // The same as replays in one buffer, each worker going on when it is done with one.
  // Destination tiles are overwritten before each, and looked at as soon as they are complete:
  // DataLoss as CheckDestination. Source and destination must not share memory.
  absl::Status RunReplays(const Plan& plan, const std::vector<int32_t>& worker_of_device,
                          TileMemory& memory, const RunOptions& options);
  // Sum over workers.
  ExecutorCounters Counters();

 private:
  struct Worker {
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<Transport> transport;
    // Destroyed before the transport, whose messages it may hold.
    std::unique_ptr<Executor> executor;
    std::unique_ptr<TaskRunner> runner;
  };
  class Collector;
  class Replayer;

  absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const Options& options, int32_t worker,
                                                           TransportSink& sink);
  absl::StatusOr<std::vector<TaskSpec>> MakeSpecs(const Plan& plan,
                                                  const std::vector<int32_t>& worker_of_device,
                                                  const TileMemory& memory,
                                                  const RunOptions& options);

  const RealClock clock_{};
  InProcessFabric fabric_;
  std::vector<std::unique_ptr<Worker>> workers_;
  uint64_t operations_ = 0;
};

}  // namespace crossmesh
