#pragma once

#include "common/base/clock.h"
#include "common/base/event_fd.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/base/unique_fd.h"
#include "common/event_loop/event_source.h"
#include "common/event_loop/timer_id.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// One thread that drives sources of events, such as transports, posted tasks and timers: everything
// confined to the loop runs there and needs no lock. It sleeps in epoll while nothing happens;
// right after a task or an event of a source it first looks again for `spin`, since the answer to a
// message often comes sooner than a thread can be woken. A timer wakes the loop by itself, and what
// is posted while it does not sleep costs no call of the system.
//
// Post and RunAndWait are thread-safe, everything else says where it may be called.
class EventLoop {
 public:
  using Task = absl::AnyInvocable<void()>;

  struct Options {
    std::string name = "loop";  // of the thread; the system shows 15 bytes
    absl::Duration spin = absl::Microseconds(30);
  };

  // `clock` is that of the timers and must outlive the loop.
  // ResourceExhausted: no file descriptors left.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create(const Clock& clock, Options options);

  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop() { Stop(); }

  // Starts the thread; at most once. Owner only.
  void Start();

  // Runs the tasks that were posted so far, ends the thread and joins it. Timers that have not
  // fired never do, nor tasks of a loop that was not started. Repeatable. Owner only, never on the
  // loop.
  void Stop();

  // Runs `task` on the loop, after all that were posted before. False, and the task is destroyed,
  // when the loop was stopped. Never blocks.
  bool Post(Task task);

  // Posts `task` and waits until it has run. False when the loop was stopped. The loop must have
  // been started; never on the loop.
  bool RunAndWait(absl::FunctionRef<void()> task);

  // On the loop, or before Start: runs `task` once, not earlier than `delay` from now.
  TimerId RunAfter(absl::Duration delay, Task task);

  // On the loop, before Start or after Stop: the task of `timer` does not run any more. Returns
  // whether that is news: false when it ran already or was cancelled.
  bool Cancel(TimerId timer);

  // On the loop, or where none was started: when the next timer is due, by the loop's clock;
  // nothing when there is none.
  std::optional<absl::Duration> NextTimer() const;

  // On the loop, before Start or after Stop: `source` is driven until it is removed, and must live
  // until then. One may be removed, but not destroyed, by what its own Progress calls.
  void AddSource(EventSource& source);
  void RemoveSource(EventSource& source);

  // For loops that were not started: does what is to be done now; when that is nothing, waits at
  // most `wait_max` for something and does that. Returns the number of tasks, timers and events of
  // sources that were handled.
  int RunOnce(absl::Duration wait_max);

 private:
  EventLoop(const Clock& clock, Options options, UniqueFd epoll, EventFd wake);

  void Run();
  int RunReady();
  int RunTasks();
  int RunTimers();
  bool ArmSources();
  void Wait(absl::Duration wait_max);
  // Whether the loop may sleep: not when something was posted. From then on Post wakes it.
  bool FallAsleep();
  bool stopping() const;

  const Clock& clock_;
  const Options options_;
  const UniqueFd epoll_;
  EventFd wake_;  // set by Post while the loop sleeps, and by Stop
  Thread thread_;

  // Confined to the loop.
  std::vector<EventSource*> sources_;
  std::map<TimerId, Task> timers_;
  // Of the timer that ran last, for the next one: a timer that restarts itself allocates nothing.
  std::map<TimerId, Task>::node_type spare_timer_;
  uint64_t timers_started_ = 0;
  std::vector<Task> running_;  // swapped with posted_, so that both keep their memory
  std::chrono::steady_clock::time_point busy_until_;  // when the spin after the last event ends

  mutable Mutex mutex_;
  std::vector<Task> posted_ ABSL_GUARDED_BY(mutex_);
  bool is_asleep_ ABSL_GUARDED_BY(mutex_) = false;  // or about to be, and was not woken
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
