#include "planner/reshard/gpu_routes.h"

#include "common/base/status_macros.h"
#include "planner/network/bound.h"
#include "planner/reshard/class_pieces.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

namespace crossmesh {
namespace {

constexpr int32_t kNoDemand = -1;

// The bytes of a group, from the end of the part before to `end`, that come to each host by one
// entry.
struct Part {
  int64_t end = 0;
  int32_t nic_demand = kNoDemand;     // of the holders and the entries
  std::vector<int32_t> link_demands;  // one for each host with something to hand on
};

std::span<const int32_t> OnHost(std::span<const int32_t> devices, HostRank host,
                                const GpuNetwork& network) {
  // Devices are sorted by host.
  const auto of_host = [&network](int32_t device) { return network.host_of[device]; };
  const auto found = std::ranges::equal_range(devices, host, {}, of_host);
  return {found.begin(), found.end()};
}

// Cuts groups into parts, and makes the demands of NICs and of links that follow.
class PartMaker {
 public:
  PartMaker(const Demands& demands, const GpuNetwork& network, int64_t part_bytes_min)
      : demands_(demands),
        network_(network),
        part_bytes_min_(part_bytes_min),
        entered_(network.host_of.size()) {}

  std::vector<Part> PartsOf(const Demand& demand) {
    const std::span<const int32_t> holders = demands_.holders(demand);
    const std::span<const int32_t> receivers = demands_.receivers(demand);
    const int64_t count = CountOfParts(demand);
    std::vector<Part> parts;
    for (int64_t p = 0; p < count; ++p) {
      const int64_t begin = parts.empty() ? 0 : parts.back().end;
      Part& part = parts.emplace_back();
      part.end = demand.bytes * (p + 1) / count;
      const int64_t bytes = part.end - begin;
      std::vector<int32_t> entries;
      for (size_t first = 0; first < receivers.size();) {
        const HostRank host = network_.host_of[receivers[first]];
        const std::span<const int32_t> here = OnHost(receivers, host, network_);
        first += here.size();
        const std::span<const int32_t> sources = OnHost(holders, host, network_);
        if (!sources.empty()) {
          AddLinkDemand(part, sources, {here.begin(), here.end()}, bytes);
          continue;
        }
        const int32_t entry = EntryOf(here, p, count, bytes);
        entries.push_back(entry);
        std::vector<int32_t> others(here.begin(), here.end());
        std::erase(others, entry);
        if (!others.empty()) AddLinkDemand(part, {&entry, 1}, others, bytes);
      }
      if (!entries.empty()) part.nic_demand = Add(nic_demands, holders, entries, bytes);
    }
    return parts;
  }

  Demands nic_demands;
  Demands link_demands;

 private:
  static int32_t Add(Demands& demands, std::span<const int32_t> holders,
                     std::span<const int32_t> receivers, int64_t bytes) {
    const int32_t holder_set = demands.sets.Intern(holders);
    demands.demands.push_back(
        {.holders = holder_set, .receivers = demands.sets.Intern(receivers), .bytes = bytes});
    return static_cast<int32_t>(demands.demands.size()) - 1;
  }

  void AddLinkDemand(Part& part, std::span<const int32_t> sources,
                     const std::vector<int32_t>& receivers, int64_t bytes) {
    part.link_demands.push_back(Add(link_demands, sources, receivers, bytes));
  }

  // The most GPUs that any one host could be entered by.
  int64_t CountOfParts(const Demand& demand) const {
    const std::span<const int32_t> receivers = demands_.receivers(demand);
    int64_t most = 1;
    for (size_t first = 0; first < receivers.size();) {
      const HostRank host = network_.host_of[receivers[first]];
      const int64_t here = std::ssize(OnHost(receivers, host, network_));
      first += here;
      if (OnHost(demands_.holders(demand), host, network_).empty()) most = std::max(most, here);
    }
    return std::clamp<int64_t>(demand.bytes / part_bytes_min_, 1, most);
  }

  // Of a group that is not cut, the one by which least came in so far.
  int32_t EntryOf(std::span<const int32_t> candidates, int64_t part, int64_t parts, int64_t bytes) {
    const int32_t entry = parts > 1 ? candidates[part * std::ssize(candidates) / parts]
                                    : *std::ranges::min_element(candidates, {}, [this](int32_t d) {
                                        return static_cast<double>(entered_[d]) /
                                               static_cast<double>(network_.nics.host_rates.in[d]);
                                      });
    entered_[entry] += bytes;
    return entry;
  }

  const Demands& demands_;
  const GpuNetwork& network_;
  const int64_t part_bytes_min_;
  std::vector<int64_t> entered_;  // bytes, by device
};

// Goes along the pieces of a demand.
class PieceCursor {
 public:
  PieceCursor(const Demands& demands, const HostRoutes& routes, int32_t demand)
      : routes_(routes), pieces_(routes.PiecesOf(demand)) {
    const Demand& of = demands.demands[demand];
    const int32_t holder = demands.holders(of)[0];
    only_hop_ = {.root = holder, .from = holder, .to = demands.receivers(of)[0]};
    only_end_ = of.bytes;
  }

  int64_t end() const { return pieces_.empty() ? only_end_ : pieces_[at_].end; }
  std::span<const HostHop> hops() const {
    return pieces_.empty() ? std::span(&only_hop_, 1) : routes_.HopsOf(pieces_[at_]);
  }
  // To the piece that has the byte at `offset`, which never falls.
  void SkipTo(int64_t offset) {
    while (!pieces_.empty() && pieces_[at_].end <= offset) ++at_;
  }

 private:
  const HostRoutes& routes_;
  const std::span<const Piece> pieces_;
  HostHop only_hop_;  // of a demand without pieces
  int64_t only_end_ = 0;
  size_t at_ = 0;
};

// Joins the pieces of a part's demands: where any of them has another route, a new piece begins.
class PartRouter {
 public:
  PartRouter(const PartMaker& made, const HostRoutes& nic_routes, const HostRoutes& link_routes,
             size_t devices)
      : made_(made), nic_routes_(nic_routes), link_routes_(link_routes), root_of_(devices) {}

  void Route(int64_t part_begin, const Part& part, HostRoutes& routes) {
    // The demand of NICs first: it says whose relays the entries are in.
    std::vector<PieceCursor> cursors;
    if (part.nic_demand != kNoDemand) {
      cursors.emplace_back(made_.nic_demands, nic_routes_, part.nic_demand);
    }
    for (const int32_t demand : part.link_demands) {
      cursors.emplace_back(made_.link_demands, link_routes_, demand);
    }
    const int64_t bytes = part.end - part_begin;
    for (int64_t begin = 0; begin < bytes;) {
      int64_t end = bytes;
      for (PieceCursor& cursor : cursors) {
        cursor.SkipTo(begin);
        end = std::min(end, cursor.end());
      }
      AddPiece(cursors, part_begin + end, routes);
      begin = end;
    }
  }

 private:
  void AddPiece(std::span<const PieceCursor> cursors, int64_t end, HostRoutes& routes) {
    const int64_t first = std::ssize(routes.hops);
    for (const PieceCursor& cursor : cursors) {
      for (const HostHop& hop : cursor.hops()) root_of_[hop.root] = hop.root;
    }
    for (const PieceCursor& cursor : cursors) {
      for (HostHop hop : cursor.hops()) {
        // An entry hands on what a root elsewhere sends it.
        hop.root = root_of_[hop.root];
        root_of_[hop.to] = hop.root;
        routes.hops.push_back(hop);
      }
    }
    // One relay for each root: its hops lie together, and stay parents first.
    std::stable_sort(routes.hops.begin() + first, routes.hops.end(),
                     [](const HostHop& a, const HostHop& b) { return a.root < b.root; });
    routes.pieces.push_back({.end = end, .first_hop = first, .end_hop = std::ssize(routes.hops)});
  }

  const PartMaker& made_;
  const HostRoutes& nic_routes_;
  const HostRoutes& link_routes_;
  std::vector<int32_t> root_of_;  // by device, of the present piece
};

absl::StatusOr<HostRoutes> RouteInLeastTime(const Demands& demands, const HostNetwork& network) {
  const ExactBound bound = ComputeBound(demands, network);
  return RouteByFlow(demands, network, bound.terms());
}

}  // namespace

absl::StatusOr<HostRoutes> RouteBetweenGpus(const Demands& demands, const GpuNetwork& network,
                                            int64_t part_bytes_min) {
  PartMaker maker(demands, network, part_bytes_min);
  std::vector<std::vector<Part>> parts;
  for (const Demand& demand : demands.demands) parts.push_back(maker.PartsOf(demand));
  ASSIGN_OR_RETURN(const HostRoutes nic_routes, RouteInLeastTime(maker.nic_demands, network.nics));
  ASSIGN_OR_RETURN(const HostRoutes link_routes,
                   RouteInLeastTime(maker.link_demands, network.links));
  HostRoutes routes;
  PartRouter router(maker, nic_routes, link_routes, network.host_of.size());
  for (const std::vector<Part>& of_group : parts) {
    routes.first_piece.push_back(std::ssize(routes.pieces));
    int64_t begin = 0;
    for (const Part& part : of_group) {
      router.Route(begin, part, routes);
      begin = part.end;
      RETURN_IF_ERROR(CheckHopCount("relay", std::ssize(routes.hops)));
    }
  }
  routes.first_piece.push_back(std::ssize(routes.pieces));
  return routes;
}

std::vector<DueTime> TakeTurns(const Demands& demands, const HostRoutes& routes) {
  struct Turn {
    int64_t piece = 0;
    int32_t to = 0;
    int64_t bytes = 0;
  };
  std::map<int32_t, std::vector<Turn>> turns_of_root;
  for (size_t d = 0; d < demands.demands.size(); ++d) {
    int64_t begin = 0;
    for (const Piece& piece : routes.PiecesOf(static_cast<int64_t>(d))) {
      const HostHop& first = routes.hops[piece.first_hop];
      turns_of_root[first.root].push_back(
          {.piece = &piece - routes.pieces.data(), .to = first.to, .bytes = piece.end - begin});
      begin = piece.end;
    }
  }
  std::vector<DueTime> due(routes.pieces.size());
  for (auto& [root, turns] : turns_of_root) {
    std::ranges::sort(turns, {}, [root](const Turn& turn) {
      return std::tuple(turn.to < root, turn.to, turn.piece);
    });
    double all = 0, before = 0;
    for (const Turn& turn : turns) all += static_cast<double>(turn.bytes);
    for (const Turn& turn : turns) {
      const double end = before + static_cast<double>(turn.bytes);
      due[turn.piece] = {.begin = static_cast<int32_t>(before / all * DueTime::kParts),
                         .end = static_cast<int32_t>(end / all * DueTime::kParts)};
      before = end;
    }
  }
  return due;
}

absl::StatusOr<Routes> RelaysBetweenGpus(const TensorTable& tensors, const Slicing& slicing,
                                         const HostGroups& groups, const HostRoutes& routes) {
  Routes relays;
  ClassPieces pieces(tensors, slicing, groups, routes);
  const auto add = [&relays](Relay relay, std::span<const HostHop> hops) {
    for (size_t h = 0; h < hops.size(); ++h) {
      if (h == 0 || hops[h].root != hops[h - 1].root) {
        relay.root = hops[h].root;
        relays.BeginRelay(relay);
      }
      relays.AddHop(hops[h].from, hops[h].to);
    }
  };
  for (ClassIndex c = 0; c < static_cast<ClassIndex>(slicing.classes().size()); ++c) {
    pieces.ForEach(c, add);
    RETURN_IF_ERROR(CheckRelayCount("relay", std::ssize(relays.relays)));
    RETURN_IF_ERROR(CheckHopCount("relay", std::ssize(relays.hops)));
  }
  return relays;
}

}  // namespace crossmesh
