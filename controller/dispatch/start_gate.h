#pragma once

#include "controller/dispatch/task_queue.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace crossmesh {

// Keeps new work from workers while what a former controller has left is being taken up: a task
// that is not adopted yet would lose its destinations to a new one. Confined to the queue, which
// must have stopped before the gate goes away.
class StartGate {
 public:
  explicit StartGate(TaskQueue& queue) : queue_(queue) {}
  StartGate(const StartGate&) = delete;
  StartGate& operator=(const StartGate&) = delete;

  // The gate is shut as long as there is a hold.
  using Hold = std::shared_ptr<const void>;
  Hold Shut() {
    ++holds_;
    return Hold(this, [](StartGate* gate) { gate->Release(); });
  }
  // Calls `then` on the queue once the gate is open; at once when it is.
  void WhenOpen(std::function<void()> then) {
    if (holds_ == 0) return then();
    waiting_.push_back(std::move(then));
  }

 private:
  void Release() {
    if (--holds_ > 0) return;
    for (std::function<void()>& then : std::exchange(waiting_, {})) queue_.Post(std::move(then));
  }

  TaskQueue& queue_;
  int holds_ = 0;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace crossmesh
