#pragma once

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/plan.h"
#include "worker/executor/executor.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/transport/testing/inprocess_fabric.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh {

// A [64, 16384] tensor of f32 from one device to two halves of its columns, by relays of 32 chunks.
Plan MakePlan(const std::string& from, const std::string& to);

// That of MakePlan("a.0", "b.0-1"), which takes at least so long.
Plan MakeSlowPlan(double least_seconds);

// A [256, 4096] tensor of f32 from halves of its columns on a.0-1 to one device, in chunks of so
// many bytes. The first half goes by two relays, of which the second has the last leaf.
Plan MakeGatheringPlan(const std::string& to, int64_t chunk_bytes);

// A [256, 128] tensor of bf16, half of whose rows are on a.0 and half on a.1, to one device as
// F8_E4M3 with its scales, all of which are relayed or copied.
Plan MakeQuantizedPlan(const std::string& to);

class Reports final : public TaskObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) override {
    devices.push_back(report);
  }
  void OnTaskDone(const TaskReport& report) override { task = report; }

  std::vector<DeviceReport> devices;
  std::optional<TaskReport> task;
};

// Two workers on one loop that the test drives. The first has devices of host a, the second the
// rest. With `nics` each has so many NICs, striped.
class ExecutorTest : public testing::Test {
 protected:
  explicit ExecutorTest(ExecutorOptions options = {}, size_t nics = 0);
  ~ExecutorTest() override { loop_->Stop(); }

  static constexpr TaskKey kKey{.operation = 1, .epoch = 1};
  // Far less than what the runner of tests gives a test, which would not say what was missing.
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  // Of kKey.
  TaskSpec MakeSpec(int worker, const Plan& plan, const TileMemory& memory);
  // Starts it at both workers.
  void StartBoth(const Plan& plan, const TileMemory& memory);

  // Until `condition` holds: a test that waits in vain for `what` ends here, and says so. Allocates
  // nothing.
  template <typename Condition>
  void RunUntil(absl::string_view what, Condition condition) {
    const absl::Duration end = clock_.Monotonic() + kPatience;
    while (!condition()) {
      CHECK(clock_.Monotonic() < end) << "waited " << kPatience << " in vain for " << what;
      loop_->RunOnce(absl::Seconds(1));
    }
  }
  // Until both have reported.
  void RunToEnd() {
    RunUntil("the reports of both workers",
             [this] { return workers_[0].reports.task && workers_[1].reports.task; });
  }
  void RunUntilIdle() {
    const absl::Duration end = clock_.Monotonic() + kPatience;
    while (loop_->RunOnce(absl::ZeroDuration()) > 0) {
      CHECK(clock_.Monotonic() < end)
          << "waited " << kPatience << " in vain for a loop with nothing to do";
    }
  }

  struct Worker {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Executor> executor;  // destroyed first
    Reports reports;
  };

  const RealClock clock_{};
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_, {});
  InProcessFabric fabric_;
  Worker workers_[2];
};

}  // namespace crossmesh
