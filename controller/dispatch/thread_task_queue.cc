#include "controller/dispatch/thread_task_queue.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

ThreadTaskQueue::ThreadTaskQueue(Options options, const Clock& clock)
    : options_(std::move(options)), clock_(clock) {
  thread_ = Thread(options_.name, [this] { Run(); });
}

bool ThreadTaskQueue::Post(Task task) {
  {
    const MutexLock lock(mutex_);
    if (stopped_ || tasks_.size() >= options_.tasks_max) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.Signal();
  return true;
}

TaskQueue::Timer ThreadTaskQueue::PostAfter(absl::Duration delay, Task task) {
  Timer timer;
  {
    const MutexLock lock(mutex_);
    timer = {clock_.Monotonic() + delay, ++last_timer_};
    if (!stopped_) timers_.emplace(timer, std::move(task));
  }
  changed_.Signal();
  return timer;
}

void ThreadTaskQueue::Cancel(const Timer& timer) {
  Task dropped;  // its destructor runs without the lock
  const MutexLock lock(mutex_);
  const auto found = timers_.find(timer);
  if (found == timers_.end()) return;
  dropped = std::move(found->second);
  timers_.erase(found);
}

void ThreadTaskQueue::Stop() {
  // Dropped tasks go away at the end and without the lock: they may own what posts and cancels.
  std::deque<Task> dropped_tasks;
  absl::btree_map<Timer, Task> dropped_timers;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    dropped_tasks.swap(tasks_);
    dropped_timers.swap(timers_);
  }
  changed_.Signal();
  thread_.Join();
}

void ThreadTaskQueue::Run() {
  while (Task task = Next()) task();
}

TaskQueue::Task ThreadTaskQueue::Next() {
  const MutexLock lock(mutex_);
  while (!stopped_) {
    CollectDueTimers();
    if (!tasks_.empty()) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      return task;
    }
    if (timers_.empty()) {
      changed_.Wait(mutex_);
    } else {
      changed_.WaitFor(mutex_, timers_.begin()->first.at - clock_.Monotonic());
    }
  }
  return nullptr;
}

void ThreadTaskQueue::CollectDueTimers() {
  const absl::Duration now = clock_.Monotonic();
  while (!timers_.empty() && timers_.begin()->first.at <= now) {
    tasks_.push_back(std::move(timers_.begin()->second));
    timers_.erase(timers_.begin());
  }
}

}  // namespace crossmesh
