#include "planner/reshard/published/global_all_gather.h"

#include "common/base/status_macros.h"
#include "planner/reshard/published/choices.h"
#include "planner/reshard/published/slices.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace crossmesh {
namespace {

// The way of the last relay: to the ring's device `first`, then around.
void AddHops(std::span<const DeviceRank> ring, size_t first, Routes& routes) {
  DeviceRank from = routes.relays.back().root;
  for (size_t i = 0; i < ring.size(); ++i) {
    const DeviceRank to = ring[(first + i) % ring.size()];
    routes.AddHop(from, to);
    from = to;
  }
}

// Of the last relay, between hosts.
void CountSent(const TensorTable& tensors, const Routes& routes, std::vector<int64_t>& sent) {
  const Relay& relay = routes.relays.back();
  for (const Hop& hop : routes.HopsOf(relay)) {
    const HostRank from = tensors.host_of(hop.from);
    if (from != tensors.host_of(hop.to)) sent[from] += relay.end - relay.begin;
  }
}

// Before any is made: a part for each receiver goes to all of them.
absl::Status CheckHops(absl::string_view name, const Slices& slices) {
  int64_t hops = 0;
  for (const Slice& slice : slices.all()) {
    const int64_t ring = std::ssize(slices.receivers(slice));
    hops += ring * PartsOf(slice, ring);
    RETURN_IF_ERROR(CheckHopCount(name, hops));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Routes> RouteByGlobalAllGather(const RoutingProblem& problem) {
  constexpr absl::string_view kName = "global_all_gather";
  const TensorTable& tensors = problem.tensors;
  ASSIGN_OR_RETURN(const Slices slices, Slices::List(kName, tensors, problem.slicing));
  RETURN_IF_ERROR(CheckHops(kName, slices));
  std::vector<int64_t> sent(tensors.hosts().size());
  Routes routes;
  for (const Slice& slice : slices.all()) {
    const std::span<const DeviceRank> ring = slices.receivers(slice);
    std::vector<HostRank> holder_hosts = HostsOf(slices.holders(slice), tensors);
    std::ranges::sort(holder_hosts);
    const std::vector<DeviceRank> senders =
        OnHost(slices.holders(slice), LeastLoaded(holder_hosts, sent), tensors);
    int64_t begin = slice.begin;
    for (size_t part = 0; part < ring.size(); ++part) {
      const int64_t end =
          PartEnd(slice, static_cast<int64_t>(part), static_cast<int64_t>(ring.size()));
      // A slice with fewer elements than receivers has empty parts.
      if (begin == end) continue;
      routes.BeginRelay({.slice_class = slice.slice_class,
                         .root = senders[part % senders.size()],
                         .begin = begin,
                         .end = end});
      AddHops(ring, part, routes);
      CountSent(tensors, routes, sent);
      begin = end;
    }
    RETURN_IF_ERROR(CheckRelayCount(kName, static_cast<int64_t>(routes.relays.size())));
  }
  return routes;
}

}  // namespace crossmesh
