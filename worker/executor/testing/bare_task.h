#pragma once

#include "common/base/fake_clock.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/plan.h"
#include "common/plan/testing/tables.h"
#include "worker/executor/executor_resources.h"
#include "worker/executor/relay_progress.h"
#include "worker/executor/source_scales.h"
#include "worker/executor/task.h"
#include "worker/executor/task_context.h"
#include "worker/executor/testing/recording_transport.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/executor/transfer_table.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

inline constexpr int64_t kLeaf = Plan::kLeafBytes;

// Bytes of a class that go along a chain of devices.
struct PlannedRelay {
  std::string chain;  // "a.0 > b.0 > b.1"
  int64_t bytes = 0;  // those after the class's relay before it; 0: all that are left
  DueTime due = {};
  ClassIndex slice_class = 0;
};

// A plan of these relays, in chunks of a leaf if `rest`, which has all that a plan says beside
// tensors, relays and hops, does not say otherwise. Aborts when a text is wrong.
Plan PlanOfRelays(const TensorText& tensor, const std::vector<PlannedRelay>& relays,
                  Plan::Spec rest = {.chunk_bytes = Plan::kLeafBytes});

// The task of a plan at the worker that is named as the host whose devices it has, as all workers.
TaskSpec SpecOfHost(const Plan& plan, const std::string& host, const TileMemory& memory);

// What the channels of a task share, without the task: for tests that call a channel by itself, and
// say what comes of each of its messages. Its clock stands still. Thread-compatible.
struct BareTask final : TransferOwner {
  struct Options {
    bool checksums = true;
    bool receivers_say_ready = false;
    int lanes = 1;
    int32_t window_periods = 2;
    int64_t staging_units = 16;  // in each direction
  };

  // As SpecOfHost. The plan must outlive the task.
  BareTask(const Plan& plan, const std::string& host, const Options& options);
  BareTask(const Plan& plan, const std::string& host) : BareTask(plan, host, Options()) {}

  void OnSent(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
  void OnReceived(Ticket /*ticket*/, const absl::Status& /*status*/) override {}

  // Runs what waits on the loop, and returns how much that was.
  int RunLoop() { return loop->RunOnce(absl::ZeroDuration()); }
  const PreparedPart& part() const { return *spec.part; }
  // Of the only entry of a channel, or the first.
  const PreparedPart::Entry& EntryOf(int32_t channel, int32_t entry = 0) const {
    return part().entries(part().channels()[channel])[entry];
  }

  FakeClock clock;
  const std::unique_ptr<EventLoop> loop = *EventLoop::Create(clock, {});
  RecordingTransport transport;
  const TileMemory memory;
  const TaskSpec spec;
  int steps = 0;  // of the task: so many were asked for, and came
  ExecutorResources shared;
  std::function<void(int32_t)> on_node;  // may be set
  RelayProgress progress;
  TaskReport report;
  SourceScales scales;
  TaskContext context;
};

}  // namespace crossmesh
