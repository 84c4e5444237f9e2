#pragma once

#include "controller/dispatch/planning_queue.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// A planning queue that runs when a test says so, in the order in which requests come. Confined to
// the test's thread.
class ManualPlanningQueue final : public PlanningQueue {
 public:
  void Post(PlanningRequest request) override {
    clients_.push_back(request.client);
    if (const absl::Status room = CheckRoom(request.client); !room.ok()) return request.work(room);
    requests_.push_back(std::move(request));
  }
  absl::Status CheckRoom(const std::string& /*client*/) const override {
    return refusing_ ? absl::ResourceExhaustedError("too many requests wait") : absl::OkStatus();
  }
  absl::Duration last_wait() const override { return absl::ZeroDuration(); }

  // Runs what is posted, and what that posts. Returns whether there was anything.
  bool Run() {
    bool ran = false;
    while (!requests_.empty()) {
      PlanningRequest request = std::move(requests_.front());
      requests_.pop_front();
      request.work(absl::OkStatus());
      ran = true;
    }
    return ran;
  }

  void Refuse() { refusing_ = true; }
  // Of all requests that were posted.
  const std::vector<std::string>& clients() const { return clients_; }

 private:
  std::deque<PlanningRequest> requests_;
  std::vector<std::string> clients_;
  bool refusing_ = false;
};

}  // namespace crossmesh
