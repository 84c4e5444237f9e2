#include "planner/reshard/host_rings.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// Bytes, and all hosts that have them in the end, ascending.
using RingKey = std::pair<int64_t, std::vector<int32_t>>;

// What a demand of one holder, which sends to all receivers itself, is a part of.
std::optional<RingKey> RingOf(const Demands& demands, const SendShares& shares, size_t d) {
  const Demand& demand = demands.demands[d];
  const std::span<const int32_t> holders = demands.holders(demand);
  const std::span<const int32_t> receivers = demands.receivers(demand);
  if (shares.first[d] == SendShares::kSole || holders.size() != 1 || receivers.size() < 2) {
    return std::nullopt;
  }
  const absl::int128 all = shares.unit * demand.bytes * static_cast<int64_t>(receivers.size());
  if (shares.amounts[shares.first[d]] != all) return std::nullopt;
  RingKey key{demand.bytes, {receivers.begin(), receivers.end()}};
  key.second.push_back(holders.front());
  std::ranges::sort(key.second);
  return key;
}

}  // namespace

void CloseRings(const Demands& demands, SendShares& shares) {
  std::map<RingKey, std::vector<size_t>> rings;
  for (size_t d = 0; d < demands.demands.size(); ++d) {
    std::optional<RingKey> key = RingOf(demands, shares, d);
    if (key.has_value()) rings[*std::move(key)].push_back(d);
  }
  for (const auto& [key, of_ring] : rings) {
    const std::vector<int32_t>& hosts = key.second;
    // Demands are each of other holders.
    if (of_ring.size() != hosts.size()) continue;
    for (const size_t d : of_ring) {
      const Demand& demand = demands.demands[d];
      const auto root = std::ranges::find(hosts, demands.holders(demand).front());
      const int32_t last = root == hosts.begin() ? hosts.back() : *(root - 1);
      int64_t at = shares.first[d];
      shares.amounts[at++] = shares.unit * demand.bytes;
      for (const int32_t receiver : demands.receivers(demand)) {
        shares.amounts[at++] = receiver == last ? absl::int128(0) : shares.unit * demand.bytes;
      }
    }
  }
}

}  // namespace crossmesh
