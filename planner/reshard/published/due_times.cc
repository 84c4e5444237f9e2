#include "planner/reshard/published/due_times.h"

#include <cstdint>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/numeric/int128.h>

namespace crossmesh {
namespace {

// What one host sends to another as the root of relays.
struct RootedBytes {
  int64_t all = 0;
  int64_t passed = 0;

  int32_t Due() const { return static_cast<int32_t>(absl::int128(DueTime::kParts) * passed / all); }
};

}  // namespace

void SpreadOverTime(const TensorTable& tensors, Routes& routes) {
  const auto pair_of = [&](const Relay& relay) {
    // Only what leaves the root is timed: later hops follow as chunks arrive.
    const DeviceRank first = routes.HopsOf(relay).front().to;
    return std::pair(tensors.host_of(relay.root), tensors.host_of(first));
  };
  absl::flat_hash_map<std::pair<HostRank, HostRank>, RootedBytes> pairs;
  for (const Relay& relay : routes.relays) pairs[pair_of(relay)].all += relay.end - relay.begin;
  for (Relay& relay : routes.relays) {
    RootedBytes& bytes = pairs[pair_of(relay)];
    relay.due.begin = bytes.Due();
    bytes.passed += relay.end - relay.begin;
    relay.due.end = bytes.Due();
  }
}

}  // namespace crossmesh
