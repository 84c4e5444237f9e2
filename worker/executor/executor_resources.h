#pragma once

#include "common/plan/plan.h"
#include "worker/executor/executor_counters.h"
#include "worker/executor/executor_options.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/transfer_table.h"
#include "worker/transport/transport.h"

#include <array>
#include <cstddef>
#include <utility>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

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

// What the tasks of one executor share. Confined to the loop.
struct ExecutorResources {
  EventLoop& loop;
  Transport& transport;
  const ExecutorOptions options;
  // A peer does not move: it is lost for every task, and its connection is cut.
  absl::AnyInvocable<void(PeerId, const absl::Status& why)> on_peer_stalled;
  StepRequests steps;
  StagingPool send_staging;
  StagingPool receive_staging;
  TransferTable transfers = {};
  ExecutorCounters counters = {};
  std::array<std::byte, Plan::kLeafBytes> leaf_scratch = {};
};

}  // namespace crossmesh
