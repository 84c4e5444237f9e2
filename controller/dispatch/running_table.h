#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "controller/dispatch/task_queue.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What runs at once, by id: each confined to a queue, counted from its start to its end.
// Thread-safe; never blocks, but for WaitUntilIdle. The queue must have stopped before the table
// goes away.
template <typename Running>
class RunningTable {
 public:
  // `things`: what they are, for errors.
  RunningTable(TaskQueue& queue, absl::string_view things, int64_t most)
      : queue_(queue), things_(things), most_(most) {}

  // Makes one on the queue, with what it has to call last, and begins it. ResourceExhausted: too
  // many run; Unavailable: the queue has stopped.
  using Make = absl::AnyInvocable<std::shared_ptr<Running>(absl::AnyInvocable<void()> on_finished)>;
  absl::Status Start(const std::string& id, Make make) {
    {
      const MutexLock lock(mutex_);
      if (running_ >= most_) {
        return absl::ResourceExhaustedError(
            absl::StrCat(running_, " ", things_, " run already, expected at most ", most_));
      }
      ++running_;
    }
    const bool taken = queue_.Post([this, id, make = std::move(make)]() mutable {
      const std::shared_ptr<Running> made = make([this, id] { Forget(id); });
      table_[id] = made;
      made->Begin();
    });
    if (taken) return absl::OkStatus();
    const MutexLock lock(mutex_);
    --running_;
    return absl::UnavailableError("the controller is stopping");
  }

  // Calls `action` on the queue: with that of the id, when it still runs, or with all.
  using Action = std::function<void(Running&)>;
  void With(const std::string& id, Action action) {
    queue_.Post([this, id, action = std::move(action)] {
      const auto found = table_.find(id);
      if (found == table_.end()) return;
      const std::shared_ptr<Running> running = found->second;
      action(*running);
    });
  }
  void WithAll(Action action) {
    queue_.Post([this, action = std::move(action)] {
      // A copy: what ends leaves the table.
      std::vector<std::shared_ptr<Running>> all;
      for (const auto& [id, running] : table_) all.push_back(running);
      for (const auto& running : all) action(*running);
    });
  }

  int64_t running() const {
    const MutexLock lock(mutex_);
    return running_;
  }
  // Whether nothing runs, after waiting for at most `timeout`. Blocks.
  bool WaitUntilIdle(absl::Duration timeout) {
    const RealClock clock;
    const absl::Duration end = clock.Monotonic() + timeout;
    const MutexLock lock(mutex_);
    while (running_ > 0) {
      const absl::Duration left = end - clock.Monotonic();
      if (left <= absl::ZeroDuration()) return false;
      idle_.WaitFor(mutex_, left);
    }
    return true;
  }

 private:
  void Forget(const std::string& id) {
    table_.erase(id);
    const MutexLock lock(mutex_);
    if (--running_ == 0) idle_.SignalAll();
  }

  TaskQueue& queue_;
  const std::string things_;
  const int64_t most_;
  absl::flat_hash_map<std::string, std::shared_ptr<Running>> table_;  // confined to the queue

  mutable Mutex mutex_;
  CondVar idle_;
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
