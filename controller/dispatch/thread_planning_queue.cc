#include "controller/dispatch/thread_planning_queue.h"

#include "common/metrics/controller_metrics.h"

#include <algorithm>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

// More gain little, and each may hold gigabytes while it makes the plan of a large request.
constexpr unsigned kThreadsMax = 8;

absl::Status Stopped() { return absl::UnavailableError("the controller is stopping"); }

}  // namespace

int ThreadPlanningQueue::ThreadsFor(unsigned processors) {
  return static_cast<int>(std::clamp(processors, 2U, kThreadsMax));
}

ThreadPlanningQueue::ThreadPlanningQueue(int threads, const Clock& clock,
                                         ControllerMetrics& metrics)
    : long_max_(threads / 2), clock_(clock), metrics_(metrics) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back("planner", [this] { Run(); }, ThreadPriority::kBackground);
  }
}

void ThreadPlanningQueue::Post(PlanningRequest request) {
  PlanningOrder::Waiting waiting{.request = std::move(request), .since = clock_.Monotonic()};
  absl::Status taken;
  {
    const MutexLock lock(mutex_);
    taken = stopped_ ? Stopped() : order_.Add(waiting);
    metrics_.SetPlansWaiting(order_.size());
  }
  if (!taken.ok()) return waiting.request.work(taken);
  changed_.Signal();
}

absl::Status ThreadPlanningQueue::CheckRoom(const std::string& client) const {
  const MutexLock lock(mutex_);
  return stopped_ ? Stopped() : order_.CheckRoom(client);
}

absl::Duration ThreadPlanningQueue::last_wait() const {
  const MutexLock lock(mutex_);
  return last_wait_;
}

void ThreadPlanningQueue::Stop() {
  std::vector<PlanningOrder::Waiting> left;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    while (auto waiting = order_.Next(/*long_too=*/true)) left.push_back(*std::move(waiting));
    metrics_.SetPlansWaiting(0);
  }
  changed_.SignalAll();
  for (PlanningOrder::Waiting& waiting : left) waiting.request.work(Stopped());
  for (Thread& thread : threads_) thread.Join();
}

void ThreadPlanningQueue::Run() {
  while (std::optional<PlanningOrder::Waiting> next = Next()) {
    next->request.work(absl::OkStatus());
    if (!next->is_long()) continue;
    const MutexLock lock(mutex_);
    --long_running_;
  }
}

std::optional<PlanningOrder::Waiting> ThreadPlanningQueue::Next() {
  const MutexLock lock(mutex_);
  while (!stopped_) {
    if (auto next = order_.Next(long_running_ < long_max_)) {
      if (next->is_long()) ++long_running_;
      last_wait_ = clock_.Monotonic() - next->since;
      metrics_.PlanWaited(last_wait_);
      metrics_.SetPlansWaiting(order_.size());
      return next;
    }
    changed_.Wait(mutex_);
  }
  return std::nullopt;
}

}  // namespace crossmesh
