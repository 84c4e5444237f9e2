#pragma once

#include <utility>

#include <absl/functional/any_invocable.h>

namespace crossmesh {

class EventLoop;

// The steps that the tasks of an executor ask for: one on the loop for all requests since the last
// one began. Confined to the loop.
class StepRequests {
 public:
  // `loop` must outlive the requests, which must outlive their steps.
  StepRequests(EventLoop& loop, absl::AnyInvocable<void()> step)
      : loop_(loop), step_(std::move(step)) {}
  StepRequests(const StepRequests&) = delete;
  StepRequests& operator=(const StepRequests&) = delete;

  // Calls the step soon, and never from inside this call.
  void Request() {
    if (!std::exchange(requested_, true)) Post();
  }

 private:
  void Post();

  EventLoop& loop_;
  absl::AnyInvocable<void()> step_;
  bool requested_ = false;
};

}  // namespace crossmesh
