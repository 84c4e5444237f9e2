#pragma once

#include "client/client.h"
#include "client/pause.h"
#include "common/base/check.h"
#include "tests/live/live_cluster.h"

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

}  // namespace crossmesh
