#include "planner/reshard/published/local_all_gather.h"

#include "common/base/status_macros.h"
#include "planner/reshard/published/choices.h"
#include "planner/reshard/published/slices.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// Device k of `to` gets part k of the slice from a device of `from` and gives it to the others.
void AddParts(const Slice& slice, std::span<const DeviceRank> from, std::span<const DeviceRank> to,
              Routes& routes) {
  int64_t begin = slice.begin;
  for (size_t part = 0; part < to.size(); ++part) {
    const int64_t end = PartEnd(slice, static_cast<int64_t>(part), static_cast<int64_t>(to.size()));
    // Fewer elements than devices leave parts empty.
    if (begin == end) continue;
    const DeviceRank root = from[part % from.size()];
    routes.BeginRelay({.slice_class = slice.slice_class, .root = root, .begin = begin, .end = end});
    routes.AddHop(root, to[part]);
    for (const DeviceRank device : to) {
      if (device != to[part]) routes.AddHop(to[part], device);
    }
    begin = end;
  }
}

// Before any is made: on a host, a part for each of its receivers goes to all of them.
absl::Status CheckHops(absl::string_view name, const TensorTable& tensors, const Slices& slices) {
  std::vector<int64_t> receivers_on_host(tensors.hosts().size());
  int64_t hops = 0;
  for (const Slice& slice : slices.all()) {
    for (const DeviceRank device : slices.receivers(slice)) {
      ++receivers_on_host[tensors.host_of(device)];
    }
    // The first receiver of a host takes all of the count, so that none is left for the next slice.
    for (const DeviceRank device : slices.receivers(slice)) {
      const int64_t here = std::exchange(receivers_on_host[tensors.host_of(device)], 0);
      hops += here * PartsOf(slice, here);
    }
    RETURN_IF_ERROR(CheckHopCount(name, hops));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Routes> RouteByLocalAllGather(const RoutingProblem& problem) {
  constexpr absl::string_view kName = "local_all_gather";
  const TensorTable& tensors = problem.tensors;
  ASSIGN_OR_RETURN(const Slices slices, Slices::List(kName, tensors, problem.slicing));
  RETURN_IF_ERROR(CheckHops(kName, tensors, slices));
  std::vector<int64_t> sent(tensors.hosts().size());
  Routes routes;
  for (const Slice& slice : slices.all()) {
    std::vector<HostRank> holder_hosts = HostsOf(slices.holders(slice), tensors);
    std::vector<HostRank> receiver_hosts = HostsOf(slices.receivers(slice), tensors);
    std::ranges::sort(holder_hosts);
    std::ranges::sort(receiver_hosts);
    for (const HostRank host : receiver_hosts) {
      HostRank sender = host;
      if (!std::ranges::binary_search(holder_hosts, host)) {
        sender = LeastLoaded(holder_hosts, sent);
        sent[sender] += slice.bytes();
      }
      AddParts(slice, OnHost(slices.holders(slice), sender, tensors),
               OnHost(slices.receivers(slice), host, tensors), routes);
    }
    RETURN_IF_ERROR(CheckRelayCount(kName, static_cast<int64_t>(routes.relays.size())));
  }
  return routes;
}

}  // namespace crossmesh
