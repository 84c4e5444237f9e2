#include "planner/reshard/published/broadcast.h"

#include "common/base/status_macros.h"
#include "planner/reshard/published/broadcast_greedy.h"
#include "planner/reshard/published/broadcast_makespan.h"
#include "planner/reshard/published/broadcast_search.h"
#include "planner/reshard/published/choices.h"
#include "planner/reshard/published/slices.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::string_view NameOf(BroadcastOrder order) {
  constexpr std::array<absl::string_view, 4> kNames = {"broadcast_naive", "broadcast_size",
                                                       "broadcast_greedy", "broadcast_search"};
  return kNames[static_cast<size_t>(order)];
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
    // The released solver's mode no_loadbalance: the first replica sends.
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
    // Its mode loadbalance_size: the order stays, ties go to the lowest host.
    b.broadcast.sender = LeastLoaded(b.candidates, assigned);
    assigned[b.broadcast.sender] += b.broadcast.bytes;
    result.push_back(std::move(b.broadcast));
  }
  return result;
}

// An order, and what is to be said of how it was found.
struct Chosen {
  std::vector<Broadcast> order;
  std::string search;
};

absl::StatusOr<std::vector<Broadcast>> ChooseGreedily(std::vector<OpenBroadcast> open,
                                                      const RoutingProblem& problem) {
  const auto hosts = static_cast<int64_t>(problem.tensors.hosts().size());
  return OrderGreedily(std::move(open), hosts, problem.seed, problem.cancelled);
}

// Starts from the better of the order by size and the greedy one, or from the first alone where
// there are too many slices for the second.
absl::StatusOr<Chosen> ChooseBySearch(const std::vector<OpenBroadcast>& open,
                                      const RoutingProblem& problem) {
  std::vector<Broadcast> incumbent = ChooseBySize(open, problem.tensors.hosts().size());
  absl::StatusOr<std::vector<Broadcast>> greedy = ChooseGreedily(open, problem);
  if (greedy.ok()) {
    const double seconds = BroadcastMakespan(incumbent, problem.network);
    if (BroadcastMakespan(*greedy, problem.network) < seconds) incumbent = *std::move(greedy);
    // The greedy order is quadratic: with too many slices the search goes on from the order by
    // size.
  } else if (!absl::IsResourceExhausted(greedy.status())) {
    return greedy.status();
  }
  ASSIGN_OR_RETURN(SearchedOrder found, SearchOrder(open, std::move(incumbent), problem.network,
                                                    {.cancelled = problem.cancelled}));
  std::string text = found.ToString();
  return Chosen{.order = std::move(found.order), .search = std::move(text)};
}

absl::StatusOr<Chosen> Choose(BroadcastOrder order, std::vector<OpenBroadcast> open,
                              const RoutingProblem& problem) {
  switch (order) {
    case BroadcastOrder::kNaive:
      return Chosen{.order = ChooseFirst(std::move(open))};
    case BroadcastOrder::kSize:
      return Chosen{.order = ChooseBySize(std::move(open), problem.tensors.hosts().size())};
    case BroadcastOrder::kGreedy: {
      ASSIGN_OR_RETURN(std::vector<Broadcast> greedy, ChooseGreedily(std::move(open), problem));
      return Chosen{.order = std::move(greedy)};
    }
    case BroadcastOrder::kSearch:
      return ChooseBySearch(open, problem);
  }
  return absl::InternalError(absl::StrCat("order number ", static_cast<int>(order)));
}

// A slice that goes from a host through others.
struct Chain {
  const Slice& slice;
  HostRank sender = 0;
  std::span<const HostRank> hosts;
};

// One relay that passes the slice from device to device, through the receivers on the hosts.
void AddChain(const Chain& chain, const Slices& slices, const TensorTable& tensors,
              Routes& routes) {
  const Slice& slice = chain.slice;
  DeviceRank from = OnHost(slices.holders(slice), chain.sender, tensors).front();
  routes.BeginRelay(
      {.slice_class = slice.slice_class, .root = from, .begin = slice.begin, .end = slice.end});
  for (const HostRank host : chain.hosts) {
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
  ASSIGN_OR_RETURN(Chosen chosen, Choose(order, OpenBroadcasts(slices, tensors), problem));
  Routes routes;
  routes.search = std::move(chosen.search);
  for (const Broadcast& b : chosen.order) {
    AddChain({slices.all()[b.slice], b.sender, b.chain}, slices, tensors, routes);
  }
  for (const Slice& slice : slices.all()) {
    const std::vector<HostRank> holder_hosts = HostsOf(slices.holders(slice), tensors);
    for (const HostRank host : HostsOf(slices.receivers(slice), tensors)) {
      // Receivers beside a holder are fed inside their host; all others were reached by the chains
      // above.
      if (std::ranges::find(holder_hosts, host) == holder_hosts.end()) continue;
      AddChain({slice, host, {&host, 1}}, slices, tensors, routes);
    }
    RETURN_IF_ERROR(CheckRelayCount(name, static_cast<int64_t>(routes.relays.size())));
  }
  routes.model_seconds = BroadcastMakespan(chosen.order, problem.network);
  return routes;
}

}  // namespace crossmesh
