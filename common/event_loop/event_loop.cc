#include "common/event_loop/event_loop.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <absl/status/status.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

namespace crossmesh {
namespace {

void Watch(int epoll, int fd) {
  epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
  CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0) << "errno " << errno;
}

// Until something happened to what `epoll` watches; false when nothing did. Not by epoll_wait,
// which counts in milliseconds, too coarse for a loop that polls a GPU; and with a timer slack of
// 1 ns, because by default the system wakes threads up to 50 us late, to wake several together.
// Rounded up, so that a timer is due when the wait for it ends.
bool WaitForEvent(int epoll, absl::Duration wait_max) {
  thread_local const int in_time = prctl(PR_SET_TIMERSLACK, 1);
  static_cast<void>(in_time);
  const absl::Duration bounded = std::clamp(wait_max, absl::ZeroDuration(), absl::Hours(1));
  const timespec timeout = absl::ToTimespec(absl::Ceil(bounded, absl::Nanoseconds(1)));
  pollfd polled = {.fd = epoll, .events = POLLIN, .revents = 0};
  const int count = ppoll(&polled, 1, &timeout, nullptr);
  CHECK(count >= 0 || errno == EINTR) << "errno " << errno;
  return count > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create(const Clock& clock, Options options) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  Watch(epoll.get(), wake.fd());
  return std::unique_ptr<EventLoop>(
      new EventLoop(clock, std::move(options), std::move(epoll), std::move(wake)));
}

EventLoop::EventLoop(const Clock& clock, Options options, UniqueFd epoll, EventFd wake)
    : clock_(clock),
      options_(std::move(options)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)) {}

void EventLoop::Start() {
  CHECK(!thread_.joinable() && !stopping()) << options_.name << " can be started only once";
  thread_ = Thread(options_.name, [this] { Run(); });
}

void EventLoop::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.Signal();
  thread_.Join();
}

bool EventLoop::Post(Task task) {
  bool wakes = false;
  {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    posted_.push_back(std::move(task));
    wakes = std::exchange(is_asleep_, false);
  }
  // A loop that does not sleep looks at what is posted before it does.
  if (wakes) wake_.Signal();
  return true;
}

bool EventLoop::RunAndWait(absl::FunctionRef<void()> task) {
  struct Done {
    Mutex mutex;
    CondVar changed;
    bool done ABSL_GUARDED_BY(mutex) = false;
  } done;
  const bool posted = Post([&] {
    task();
    // Signals under the lock: the waiter may destroy `done` as soon as it can have the lock.
    MutexLock lock(done.mutex);
    done.done = true;
    done.changed.Signal();
  });
  if (!posted) return false;
  MutexLock lock(done.mutex);
  while (!done.done) done.changed.Wait(done.mutex);
  return true;
}

TimerId EventLoop::RunAfter(absl::Duration delay, Task task) {
  const TimerId timer(clock_.Monotonic() + delay, ++timers_started_);
  if (spare_timer_.empty()) {
    timers_.emplace(timer, std::move(task));
  } else {
    spare_timer_.key() = timer;
    spare_timer_.mapped() = std::move(task);
    timers_.insert(std::move(spare_timer_));
  }
  return timer;
}

bool EventLoop::Cancel(TimerId timer) { return timers_.erase(timer) > 0; }

std::optional<absl::Duration> EventLoop::NextTimer() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first.due_;
}

void EventLoop::AddSource(EventSource& source) {
  sources_.push_back(&source);
  Watch(epoll_.get(), source.event_fd());
}

void EventLoop::RemoveSource(EventSource& source) {
  CHECK(std::erase(sources_, &source) == 1)
      << "a source of loop " << options_.name << " was not added";
  CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, source.event_fd(), nullptr), 0)
      << "errno " << errno;
}

int EventLoop::RunOnce(absl::Duration wait_max) {
  const bool may_wait = wait_max > absl::ZeroDuration();
  int handled = RunReady();
  while (handled == 0 && may_wait && std::chrono::steady_clock::now() < busy_until_) {
    // Another thread that wants this core has it first, above all that of a peer on the same host.
    sched_yield();
    handled = RunReady();
  }
  if (handled == 0 && may_wait) {
    if (ArmSources() && FallAsleep()) Wait(wait_max);
    handled = RunReady();
  }
  return handled;
}

void EventLoop::Run() {
  while (!stopping()) RunOnce(absl::InfiniteDuration());
  RunTasks();
}

int EventLoop::RunReady() {
  int events = RunTasks();
  const int timers = RunTimers();
  // By index: a callback may add or remove a source.
  for (size_t i = 0; i < sources_.size(); ++i) events += sources_[i]->Progress();
  if (events > 0) {
    busy_until_ = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.spin);
  }
  return events + timers;
}

int EventLoop::RunTasks() {
  {
    MutexLock lock(mutex_);
    is_asleep_ = false;
    if (posted_.empty()) return 0;
    running_.swap(posted_);
  }
  for (Task& task : running_) task();
  const int handled = static_cast<int>(running_.size());
  running_.clear();
  return handled;
}

int EventLoop::RunTimers() {
  if (timers_.empty()) return 0;
  // Timers that are started by these tasks wait for the next round, even those without delay.
  const TimerId now(clock_.Monotonic(), timers_started_);
  int handled = 0;
  while (!timers_.empty() && !(now < timers_.begin()->first)) {
    spare_timer_ = timers_.extract(timers_.begin());
    // Out of the node before it runs: the task may start a timer, which takes the node over.
    Task task = std::move(spare_timer_.mapped());
    task();
    ++handled;
  }
  return handled;
}

bool EventLoop::ArmSources() {
  // All of them, even when one is not ready to sleep: arming is cheap and has no other effect.
  bool armed = true;
  for (EventSource* source : sources_) armed = source->Arm() && armed;
  return armed;
}

bool EventLoop::FallAsleep() {
  MutexLock lock(mutex_);
  is_asleep_ = posted_.empty() && !stopping_;
  return is_asleep_;
}

void EventLoop::Wait(absl::Duration wait_max) {
  if (!timers_.empty()) {
    wait_max = std::min(wait_max, timers_.begin()->first.due_ - clock_.Monotonic());
  }
  if (!WaitForEvent(epoll_.get(), wait_max)) return;
  std::array<epoll_event, 16> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), /*timeout=*/0);
  CHECK(count >= 0 || errno == EINTR) << "errno " << errno;
  for (int i = 0; i < count; ++i) {
    // Sources drain their own descriptors in Progress.
    if (events[i].data.fd == wake_.fd()) wake_.Drain();
  }
}

bool EventLoop::stopping() const {
  MutexLock lock(mutex_);
  return stopping_;
}

}  // namespace crossmesh
