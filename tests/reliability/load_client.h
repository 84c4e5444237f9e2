#pragma once

#include "client/client.h"
#include "client/outcome.h"
#include "client/pause.h"
#include "common/base/check.h"
#include "tests/live/live_cluster.h"

#include <algorithm>
#include <utility>

#include <absl/time/time.h>

namespace crossmesh {

// Within which whatever a client is told of has ended.
inline constexpr absl::Duration kEndsWithin = absl::Seconds(30);

// A client that waits for a controller that is away.
inline Client ConnectForLoad(const LiveCluster& cluster) {
  absl::StatusOr<Client> client =
      Client::Connect(cluster.controller_address(), {.retry_for = kEndsWithin});
  CHECK_OK(client.status());
  return *std::move(client);
}

// Before a client asks again for what was refused.
inline void PauseOfLoad() { Pause(absl::Milliseconds(20)); }

// All operations and runs that a controller knows.
inline bool AllHaveEnded(Client& client) {
  constexpr int kEnough = 1000;
  const auto operations = client.ListOperations(kEnough);
  const auto runs = client.ListPipelineRuns(kEnough);
  const auto has_ended = [](const auto& job) { return HasEnded(job); };
  return operations.ok() && runs.ok() && std::ranges::all_of(*operations, has_ended) &&
         std::ranges::all_of(*runs, has_ended);
}

}  // namespace crossmesh
