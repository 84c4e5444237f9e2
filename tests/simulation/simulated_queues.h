#pragma once

#include "controller/dispatch/planning_queue.h"
#include "controller/dispatch/task_queue.h"
#include "tests/simulation/simulated_node.h"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// The queue of a process, in its simulated time. What is left when it goes away is dropped.
class SimulatedTaskQueue final : public TaskQueue {
 public:
  explicit SimulatedTaskQueue(SimulatedNode& node) : node_(node) {}

  bool Post(Task task) override {
    // All take the same time, so that they keep their order.
    Later(absl::Microseconds(1), ++last_, std::move(task));
    return true;
  }
  Timer PostAfter(absl::Duration delay, Task task) override {
    const Timer timer{.at = node_.clock().Monotonic() + delay, .number = ++last_};
    Later(delay, timer.number, std::move(task));
    return timer;
  }
  void Cancel(const Timer& timer) override { tasks_.erase(timer.number); }

 private:
  void Later(absl::Duration delay, uint64_t number, Task task) {
    tasks_.emplace(number, std::move(task));
    node_.After(delay, [this, number, is_there = std::weak_ptr<const bool>(is_there_)] {
      if (is_there.expired()) return;
      const auto found = tasks_.find(number);
      if (found == tasks_.end()) return;
      Task due = std::move(found->second);
      tasks_.erase(found);
      due();
    });
  }

  SimulatedNode& node_;
  uint64_t last_ = 0;
  std::map<uint64_t, Task> tasks_;
  const std::shared_ptr<const bool> is_there_ = std::make_shared<const bool>(true);
};

// Planners that need a millisecond for everything. What is left when it goes away is dropped.
class SimulatedPlanners final : public PlanningQueue {
 public:
  explicit SimulatedPlanners(SimulatedNode& node) : node_(node) {}

  void Post(PlanningRequest request) override {
    const uint64_t number = ++last_;
    requests_.emplace(number, std::move(request));
    node_.After(absl::Milliseconds(1),
                [this, number, is_there = std::weak_ptr<const bool>(is_there_)] {
                  if (is_there.expired()) return;
                  PlanningRequest due = std::move(requests_.at(number));
                  requests_.erase(number);
                  due.work(absl::OkStatus());
                });
  }
  absl::Status CheckRoom(const std::string& /*client*/) const override { return absl::OkStatus(); }
  absl::Duration last_wait() const override { return absl::ZeroDuration(); }

 private:
  SimulatedNode& node_;
  uint64_t last_ = 0;
  std::map<uint64_t, PlanningRequest> requests_;
  const std::shared_ptr<const bool> is_there_ = std::make_shared<const bool>(true);
};

}  // namespace crossmesh
