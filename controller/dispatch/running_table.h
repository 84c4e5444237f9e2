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

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {

// What runs at once, of one kind (RunningOperation, RunningPipeline), by id: each confined to the
// environment's queue, and counted from its start to its end. Thread-safe; never blocks, but for
// WaitUntilIdle. The queue must have stopped before the table goes away.
template <typename Running>
class RunningTable {
 public:
  using Environment = typename Running::Environment;
  using Request = typename Running::Request;

  explicit RunningTable(const Environment& environment) : environment_(environment) {}

  // Runs it; the environment's sink hears how it goes. ResourceExhausted: too many run;
  // Unavailable: the queue has stopped.
  absl::Status Start(Request request) {
    {
      const MutexLock lock(mutex_);
      if (running_ >= Running::kRunsMax) {
        return absl::ResourceExhaustedError(absl::StrCat(running_, " ", Running::kPlural,
                                                         " run already, expected at most ",
                                                         int64_t{Running::kRunsMax}));
      }
      ++running_;
    }
    const bool taken = environment_.queue.Post([this, request = std::move(request)]() mutable {
      const std::string id = request.shown.id();
      const auto running =
          std::make_shared<Running>(environment_, std::move(request), [this, id] { Forget(id); });
      table_[id] = running;
      running->Begin();
    });
    if (taken) return absl::OkStatus();
    const MutexLock lock(mutex_);
    --running_;
    return absl::UnavailableError("the controller is stopping");
  }

  // Calls `action` on the queue: with the one of this id, when it still runs, or with all.
  using Action = std::function<void(Running&)>;
  void With(const std::string& id, Action action) {
    environment_.queue.Post([this, id, action = std::move(action)] {
      const auto found = table_.find(id);
      if (found == table_.end()) return;
      const std::shared_ptr<Running> running = found->second;
      action(*running);
    });
  }
  void WithAll(Action action) {
    environment_.queue.Post([this, action = std::move(action)] {
      // A copy: what ends leaves the table.
      std::vector<std::shared_ptr<Running>> all;
      for (const auto& [id, running] : table_) all.push_back(running);
      for (const auto& running : all) action(*running);
    });
  }

  // Calls `then` on the queue, if there are any, with those of `ids` that do not run.
  void FindEnded(std::vector<std::string> ids, std::function<void(std::vector<std::string>)> then) {
    environment_.queue.Post([this, ids = std::move(ids), then = std::move(then)]() mutable {
      std::erase_if(ids, [this](const std::string& id) { return table_.contains(id); });
      if (!ids.empty()) then(std::move(ids));
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

  const Environment environment_;
  absl::btree_map<std::string, std::shared_ptr<Running>> table_;  // confined to the queue

  mutable Mutex mutex_;
  CondVar idle_;
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
