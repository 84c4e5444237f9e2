#pragma once

#include "controller/dispatch/planning_queue.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// A planning queue that runs when a test says so, in the order in which jobs come. Confined to the
// test's thread.
class ManualPlanningQueue final : public PlanningQueue {
 public:
  void Post(PlanningJob job) override {
    clients_.push_back(job.client);
    if (refusing_) return job.work(absl::ResourceExhaustedError("too many requests wait"));
    jobs_.push_back(std::move(job));
  }

  // Runs what is posted, and what that posts. Returns whether there was anything.
  bool Run() {
    bool ran = false;
    while (!jobs_.empty()) {
      PlanningJob job = std::move(jobs_.front());
      jobs_.pop_front();
      job.work(absl::OkStatus());
      ran = true;
    }
    return ran;
  }

  void Refuse() { refusing_ = true; }
  // Of all jobs that were posted.
  const std::vector<std::string>& clients() const { return clients_; }

 private:
  std::deque<PlanningJob> jobs_;
  std::vector<std::string> clients_;
  bool refusing_ = false;
};

}  // namespace crossmesh
