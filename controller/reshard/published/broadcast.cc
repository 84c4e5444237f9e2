#include "controller/reshard/published/broadcast.h"

#include "common/base/status_macros.h"
#include "controller/reshard/published/broadcast_greedy.h"
#include "controller/reshard/published/broadcast_makespan.h"
#include "controller/reshard/published/choices.h"
#include "controller/reshard/published/slices.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

absl::string_view NameOf(BroadcastOrder order) {
  switch (order) {
    case BroadcastOrder::kNaive:
      return "broadcast_naive";
    case BroadcastOrder::kSize:
      return "broadcast_size";
    case BroadcastOrder::kGreedy:
      return "broadcast_greedy";
  }
  return "broadcast";
}

// Slices that cross a NIC, in order, with all holder hosts: the first holder's first.
std::vector<OpenBroadcast> OpenBroadcasts(const Slices& slices, const TensorTable& tensors) {
  std::vector<OpenBroadcast> result;
  for (size_t i = 0; i < slices.all().size(); ++i) {
    const Slice& slice = slices.all()[i];
    std::vector<HostRank> chain = ReceiverHosts(slices, slice, tensors);
    if (chain.empty()) continue;
    result.push_back({.broadcast = {.slice = static_cast<int64_t>(i),
                                    .chain = std::move(chain),
                                    .bytes = slice.bytes()},
                      .candidates = HostsOf(slices.holders(slice), tensors)});
  }
  return result;
}

std::vector<Broadcast> ChooseFirst(std::vector<OpenBroadcast> open) {
  std::vector<Broadcast> result;
  for (OpenBroadcast& b : open) {
    b.broadcast.sender = b.candidates.front();
    result.push_back(std::move(b.broadcast));
  }
  return result;
}

std::vector<Broadcast> ChooseBySize(std::vector<OpenBroadcast> open, size_t hosts) {
  std::vector<int64_t> assigned(hosts);
  std::vector<Broadcast> result;
  for (OpenBroadcast& b : open) {
    std::ranges::sort(b.candidates);
    b.broadcast.sender = LeastLoaded(b.candidates, assigned);
    assigned[b.broadcast.sender] += b.broadcast.bytes;
    result.push_back(std::move(b.broadcast));
  }
  return result;
}

absl::StatusOr<std::vector<Broadcast>> Choose(BroadcastOrder order, std::vector<OpenBroadcast> open,
                                              const RoutingProblem& problem) {
  const size_t hosts = problem.tensors.hosts().size();
  switch (order) {
    case BroadcastOrder::kNaive:
      return ChooseFirst(std::move(open));
    case BroadcastOrder::kSize:
      return ChooseBySize(std::move(open), hosts);
    case BroadcastOrder::kGreedy:
      break;
  }
  return OrderGreedily(std::move(open), static_cast<int64_t>(hosts), problem.seed,
                       problem.cancelled);
}

// One relay that passes the slice from device to device, through the receivers on these hosts.
void AddChain(const Slices& slices, const Slice& slice, HostRank sender,
              std::span<const HostRank> hosts, const TensorTable& tensors, Routes& routes) {
  DeviceRank from = OnHost(slices.holders(slice), sender, tensors).front();
  routes.BeginRelay(slice.slice_class, from, slice.begin, slice.end);
  for (const HostRank host : hosts) {
    for (const DeviceRank to : OnHost(slices.receivers(slice), host, tensors)) {
      routes.AddHop(from, to);
      from = to;
    }
  }
}

}  // namespace

absl::StatusOr<Routes> RouteByBroadcast(const RoutingProblem& problem, BroadcastOrder order) {
  const absl::string_view name = NameOf(order);
  const TensorTable& tensors = problem.tensors;
  ASSIGN_OR_RETURN(const Slices slices, Slices::List(name, tensors, problem.slicing));
  ASSIGN_OR_RETURN(const std::vector<Broadcast> broadcasts,
                   Choose(order, OpenBroadcasts(slices, tensors), problem));
  Routes routes;
  for (const Broadcast& b : broadcasts) {
    AddChain(slices, slices.all()[b.slice], b.sender, b.chain, tensors, routes);
  }
  for (const Slice& slice : slices.all()) {
    const std::vector<HostRank> holder_hosts = HostsOf(slices.holders(slice), tensors);
    for (const HostRank host : HostsOf(slices.receivers(slice), tensors)) {
      if (std::ranges::find(holder_hosts, host) == holder_hosts.end()) continue;
      AddChain(slices, slice, host, {&host, 1}, tensors, routes);
    }
    RETURN_IF_ERROR(CheckRelayCount(name, static_cast<int64_t>(routes.relays.size())));
  }
  routes.model_seconds = BroadcastMakespan(broadcasts, problem.network);
  return routes;
}

}  // namespace crossmesh
