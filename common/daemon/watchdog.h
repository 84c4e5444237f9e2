#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

// Asks the threads that a daemon cannot be without for a sign of life, again and again, and ends
// the process when one has been silent for too long: what is stuck would stay so, and another
// process goes on where this one ended. Thread-safe.
class Watchdog {
 public:
  struct Options {
    absl::Duration every = absl::Seconds(1);
    // So long may a thread be silent until this process is not called alive any more, and until it
    // is to end.
    absl::Duration live_max = absl::Seconds(5);
    absl::Duration silent_max = absl::Seconds(15);
    // Called by the watchdog's thread: at each look at which all live, and once, with what is
    // silent for how long, when it is too long.
    std::function<void()> on_alive;
    std::function<void(const std::string&)> on_silent;
  };
  // Has `answered` be called by the thread that is asked, soon; must not block itself. It may never
  // be called, and may be called when the watchdog is gone.
  using Ask = std::function<void(std::function<void()> answered)>;

  explicit Watchdog(Options options) : options_(std::move(options)) {}
  ~Watchdog() { Stop(); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // `what` is for people, such as "data loop".
  void Watch(std::string what, Ask ask);
  // Looks from now on, by a thread of its own.
  void Start();
  // Asks nothing of what is watched any more, and waits for what is being asked: before that goes.
  // Repeatable; not by what is asked.
  void Forget();
  // Looks no more. Repeatable.
  void Stop();

  // One look. Silence is counted in looks and not on a clock, so that a process that was itself
  // stopped, with all its threads, or a machine that slept, is not taken for one that hangs.
  void Look();

  // "data loop: silent for 7 s" when something is not alive; nothing else.
  std::optional<std::string> WhatIsSilent() const;

 private:
  struct Watched {
    std::string what;
    Ask ask;
    // Shared with what is asked, which may answer at any time.
    std::shared_ptr<std::atomic<bool>> answered;
    int64_t silent_looks = 0;
  };

  std::optional<std::string> SilentFor(absl::Duration least) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  const Options options_;
  Mutex asking_;  // held while asking, so that what is asked is still there; taken first
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Watched> watched_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_told_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace crossmesh
