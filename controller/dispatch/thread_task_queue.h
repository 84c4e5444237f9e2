#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "controller/dispatch/task_queue.h"

#include <cstddef>
#include <deque>
#include <string>

#include <absl/container/btree_map.h>

namespace crossmesh {

// A task queue with a thread of its own, which runs one task after the other. Thread-safe.
class ThreadTaskQueue final : public TaskQueue {
 public:
  struct Options {
    std::string name;            // of the thread
    size_t tasks_max = 1 << 20;  // that wait to run; timers are not counted
  };

  // `clock` must be a clock that runs by itself, and outlive the queue.
  ThreadTaskQueue(Options options, const Clock& clock);
  ~ThreadTaskQueue() override { Stop(); }

  bool Post(Task task) override;
  Timer PostAfter(absl::Duration delay, Task task) override;
  void Cancel(const Timer& timer) override;

  // Waits for tasks that run; drops the others. Repeatable. Not to be called by a task.
  void Stop();

 private:
  void Run();
  // Waits until there is something to do. An empty task: the queue has stopped.
  Task Next();
  void CollectDueTimers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock& clock_;
  Thread thread_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<Timer, Task> timers_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
