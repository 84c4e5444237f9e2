#pragma once

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/plan.h"
#include "worker/executor/executor.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/transport/testing/inprocess_fabric.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh {

// A [64, 16384] tensor of f32 from one device to two halves of its columns, by relays of 32 chunks.
Plan MakePlan(const std::string& from, const std::string& to);

// That of MakePlan("a.0", "b.0-1"), which takes at least so long.
Plan MakeSlowPlan(double least_seconds);

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

  // Of kKey.
  TaskSpec MakeSpec(int worker, const Plan& plan, const TileMemory& memory);
  // Starts it at both workers.
  void StartBoth(const Plan& plan, const TileMemory& memory);

  template <typename Condition>
  void RunUntil(Condition condition) {
    while (!condition()) loop_->RunOnce(absl::Seconds(1));
  }
  // Until both have reported.
  void RunToEnd() {
    RunUntil([this] { return workers_[0].reports.task && workers_[1].reports.task; });
  }
  void RunUntilIdle() {
    while (loop_->RunOnce(absl::ZeroDuration()) > 0) {
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
