#pragma once

#include <cstdint>

#include <absl/functional/any_invocable.h>
#include <absl/time/time.h>

namespace crossmesh {

// Where work is left to be done soon, by another thread. Implementations are thread-safe and run
// tasks without holding a lock; nothing here blocks.
class TaskQueue {
 public:
  using Task = absl::AnyInvocable<void()>;

  // Names a task that waits for its time.
  struct Timer {
    absl::Duration at;    // on the queue's clock
    uint64_t number = 0;  // 0: none
    friend bool operator<(const Timer& a, const Timer& b) {
      return a.at != b.at ? a.at < b.at : a.number < b.number;
    }
  };

  virtual ~TaskQueue() = default;

  // Runs `task` after those posted before. False when the queue is full or has stopped: the task is
  // dropped.
  virtual bool Post(Task task) = 0;
  // Runs `task` when `delay` has passed, unless it is cancelled or the queue stops before.
  virtual Timer PostAfter(absl::Duration delay, Task task) = 0;
  // Repeatable; nothing happens when the task has begun.
  virtual void Cancel(const Timer& timer) = 0;
};

}  // namespace crossmesh
