#pragma once

#include "common/base/fake_clock.h"
#include "controller/dispatch/task_queue.h"

#include <deque>
#include <utility>

#include <absl/container/btree_map.h>

namespace crossmesh {

// A task queue that runs when a test says so, by a clock that the test moves. Confined to the
// test's thread.
class ManualTaskQueue final : public TaskQueue {
 public:
  explicit ManualTaskQueue(FakeClock& clock) : clock_(clock) {}

  bool Post(Task task) override {
    tasks_.push_back(std::move(task));
    return true;
  }
  Timer PostAfter(absl::Duration delay, Task task) override {
    const Timer timer = {clock_.Monotonic() + delay, ++last_timer_};
    timers_.emplace(timer, std::move(task));
    return timer;
  }
  void Cancel(const Timer& timer) override { timers_.erase(timer); }

  // Runs what is posted and due, and what that posts. Returns whether there was anything.
  bool Run() {
    bool ran = false;
    while (true) {
      while (!timers_.empty() && timers_.begin()->first.at <= clock_.Monotonic()) {
        tasks_.push_back(std::move(timers_.begin()->second));
        timers_.erase(timers_.begin());
      }
      if (tasks_.empty()) return ran;
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
      ran = true;
    }
  }

  size_t timers() const { return timers_.size(); }

 private:
  FakeClock& clock_;
  std::deque<Task> tasks_;
  absl::btree_map<Timer, Task> timers_;
  uint64_t last_timer_ = 0;
};

}  // namespace crossmesh
