#pragma once

#include "common/plan/plan.h"
#include "worker/executor/executor_counters.h"
#include "worker/executor/executor_options.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/step_requests.h"
#include "worker/executor/transfer_table.h"
#include "worker/transport/transport.h"

#include <array>
#include <cstddef>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

namespace crossmesh {

class EventLoop;

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
