#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "controller/dispatch/planning_order.h"
#include "controller/dispatch/planning_queue.h"

#include <optional>
#include <string>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

class ControllerMetrics;

// A planning queue with threads of its own, which take requests by PlanningOrder. Long ones run on
// half of the threads at most: what is short finds one of the others, however much is asked for,
// and the memory that long ones take while they run is bounded. The threads are in the background:
// what is answered at once never waits for a plan. Thread-safe.
class ThreadPlanningQueue final : public PlanningQueue {
 public:
  // For a machine of so many processors; at least 2.
  static int ThreadsFor(unsigned processors);

  // At least 2 `threads`. All else must outlive the queue.
  ThreadPlanningQueue(int threads, const Clock& clock, ControllerMetrics& metrics);
  ~ThreadPlanningQueue() override { Stop(); }

  void Post(PlanningRequest request) override;
  absl::Status CheckRoom(const std::string& client) const override;
  absl::Duration last_wait() const override;

  // Waits for requests that run; tells the others that there is no turn for them. Repeatable. Not
  // to be called by a request.
  void Stop();

 private:
  void Run();
  // Waits until there is something to do. Nothing: the queue has stopped.
  std::optional<PlanningOrder::Waiting> Next();

  const int long_max_;  // long requests at once
  const Clock& clock_;
  ControllerMetrics& metrics_;

  mutable Mutex mutex_;
  CondVar changed_;
  PlanningOrder order_ ABSL_GUARDED_BY(mutex_);
  int long_running_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration last_wait_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;  // last, since they use the others
};

}  // namespace crossmesh
