#pragma once

#include <cstdint>

#include <absl/time/time.h>

namespace crossmesh {

struct ExecutorOptions {
  // For chunks in more pieces of memory than the transport takes; half for sending, half for
  // receiving.
  int64_t staging_bytes = int64_t{32} << 20;
  // What is in flight to a peer for each of its lanes, in periods of the plan: one is gathered
  // while the other is sent; more, to all peers together, does not stay in the caches until it is.
  int32_t window_periods = 2;
  static constexpr int32_t kLaneMessagesMax = 32;

  // Messages of operations that are not known yet: how many are kept, and for how long.
  int64_t pending_messages_max = 4096;
  absl::Duration pending_for = absl::Seconds(30);
};

}  // namespace crossmesh
