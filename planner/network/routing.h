// What a routing strategy is given and what it answers. A strategy is a function from a
// RoutingProblem to Routes; PlanReshard turns its answer into a plan.

#pragma once

#include "common/base/cancel_check.h"
#include "common/plan/plan.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"
#include "planner/network/bound.h"
#include "planner/network/demands.h"
#include "planner/network/host_network.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// Bring every class to its receivers that do not hold it. References must outlive the use.
struct RoutingProblem {
  const TensorTable& tensors;
  const Slicing& slicing;
  const HostNetwork& network;
  const HostGroups& groups;
  const ExactBound& bound;
  uint64_t seed = 0;                       // the only source of randomness
  bool no_rings = false;                   // of hosts
  CancelCheck cancelled = NeverCancelled;  // for strategies that search
};

// Relays in the order in which channels carry them, hops of a relay parents first. Places and
// periods are not set yet: AssignPlacesAndPeriods.
struct Routes {
  std::vector<Relay> relays;
  std::vector<Hop> hops;
  std::string search;  // what the strategy says of its search
  // Least run time by the strategy's own model, where it has one beyond the busiest port.
  double model_seconds = 0;
  // With racks, where the strategy knows it: of the busiest port before rounding to elements.
  double planned_seconds = 0;

  // Begins a relay of these bytes from this root; the hops added next are its own.
  void BeginRelay(const Relay& relay) {
    relays.push_back(relay);
    relays.back().first_hop = static_cast<int64_t>(hops.size());
  }
  void AddHop(DeviceRank from, DeviceRank to) {
    hops.push_back({.from = from, .to = to});
    ++relays.back().hop_count;
  }
  std::span<const Hop> HopsOf(const Relay& relay) const {
    return {hops.data() + relay.first_hop, static_cast<size_t>(relay.hop_count)};
  }
};

// ResourceExhausted, naming strategy and limit, when a plan cannot have that many relays, or hops.
// To be asked with what routes will have, before they are made.
absl::Status CheckRelayCount(absl::string_view strategy, int64_t relays);
absl::Status CheckHopCount(absl::string_view strategy, int64_t hops);

// The receivers of a class that do not hold it: whatever its routes, each of them takes a hop.
int64_t LeastHops(const Slicing& slicing, ClassIndex slice_class);

// The same two checks, and one of copies, for what any plan of these classes has. Cost: linear in
// the classes and in the smaller set of each, or less where it is refused.
absl::Status CheckClassCounts(absl::string_view strategy, const Slicing& slicing);

// Sets every hop's place: channels carry their relays in the order of the list, so that with the
// data edges the whole is acyclic; and its period: hops between the root and it. Cost: linear.
void AssignPlacesAndPeriods(const TensorTable& tensors, Routes& routes);

// Of every class, the devices that hold it and need it. Cost: linear in the sets of the classes.
std::vector<LocalCopy> CopiesInPlace(const Slicing& slicing);

// The devices of a host in an ascending list, which must not be empty: a part of it, since ranks
// are sorted by host.
std::span<const DeviceRank> DevicesOnHost(std::span<const DeviceRank> devices, HostRank host,
                                          const TensorTable& tensors);

}  // namespace crossmesh
