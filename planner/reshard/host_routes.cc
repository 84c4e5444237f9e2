#include "planner/reshard/host_routes.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "planner/network/bound.h"
#include "planner/network/routing.h"
#include "planner/reshard/whole_degrees.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace crossmesh {
namespace {

class PieceRouter {
 public:
  PieceRouter(const HostNetwork& network, std::span<const int32_t> holders,
              std::span<const int32_t> receivers)
      : network_(network), holders_(holders), receivers_(receivers) {}

  // Appends the hops of a piece.
  void Route(std::span<const int64_t> degrees, std::vector<HostHop>& hops) {
    open_.clear();
    // Degrees add up to the number of receivers, so every receiver finds a place; falling degrees
    // put those that feed others near the root.
    for (size_t i = 0; i < holders_.size(); ++i) Open({holders_[i], holders_[i]}, degrees[i]);
    const size_t first = hops.size();
    size_t taken = 0;
    for (const auto& [host, degree] : ByFallingDegree(degrees)) {
      CHECK(taken < open_.size()) << "degrees of " << receivers_.size() << " receivers";
      const Place place = open_[taken++];
      hops.push_back({.root = place.root, .from = place.host, .to = host});
      Open({place.root, host}, degree);
    }
    // One relay for each root: its hops lie together, and stay parents first.
    std::stable_sort(hops.begin() + static_cast<int64_t>(first), hops.end(),
                     [](const HostHop& a, const HostHop& b) { return a.root < b.root; });
  }

 private:
  struct Place {
    HostRank root;
    HostRank host;
  };
  struct Receiver {
    HostRank host;
    int64_t degree;
  };

  void Open(Place place, int64_t count) { open_.insert(open_.end(), count, place); }

  int32_t RackOf(HostRank host) const {
    return network_.has_racks() ? network_.rack_of_host[host] : 0;
  }

  std::vector<Receiver> ByFallingDegree(std::span<const int64_t> degrees) const {
    std::vector<Receiver> result;
    for (size_t i = 0; i < receivers_.size(); ++i) {
      result.push_back({receivers_[i], degrees[holders_.size() + i]});
    }
    std::ranges::sort(result, {}, [this](const Receiver& r) {
      const bool in_root_rack = std::ranges::any_of(
          open_, [&](const Place& p) { return RackOf(p.host) == RackOf(r.host); });
      const bool is_behind = r.degree > 0 && r.host < holders_.front();
      return std::tuple(-r.degree, !in_root_rack, RackOf(r.host), is_behind, r.host);
    });
    return result;
  }

  const HostNetwork& network_;
  const std::span<const int32_t> holders_;
  const std::span<const int32_t> receivers_;
  std::vector<Place> open_;  // places to be taken, in this order
};

}  // namespace

HostRoutes RoundShares(const Demands& demands, const SendShares& shares, const HostNetwork& network,
                       int64_t fan_out) {
  HostRoutes routes;
  for (size_t d = 0; d < demands.demands.size(); ++d) {
    routes.first_piece.push_back(static_cast<int64_t>(routes.pieces.size()));
    // No pieces: PiecesOf is empty, and readers take the only route.
    if (shares.first[d] == SendShares::kSole) continue;
    const Demand& demand = demands.demands[d];
    const std::span<const int32_t> holders = demands.holders(demand);
    const std::span<const int32_t> receivers = demands.receivers(demand);
    const std::vector<DegreeSection> sections =
        WholeDegrees({&shares.amounts[shares.first[d]], holders.size() + receivers.size()},
                     demand.bytes, shares.unit);
    PieceRouter router(network, holders, receivers);
    int64_t begin = 0;
    for (const DegreeSection& section : sections) {
      for (const DegreeSection& part : FanOut(section, begin, std::ssize(holders), fan_out)) {
        const int64_t first_hop = std::ssize(routes.hops);
        router.Route(part.degrees, routes.hops);
        routes.pieces.push_back(
            {.end = part.end, .first_hop = first_hop, .end_hop = std::ssize(routes.hops)});
      }
      begin = section.end;
    }
  }
  routes.first_piece.push_back(static_cast<int64_t>(routes.pieces.size()));
  return routes;
}

absl::Status CheckPieces(const Demands& demands, const SendShares& shares) {
  int64_t hops = 0;
  for (size_t d = 0; d < demands.demands.size(); ++d) {
    if (shares.first[d] == SendShares::kSole) continue;
    const Demand& demand = demands.demands[d];
    // Of holders too: a section has the degree of each.
    const int64_t hosts =
        std::ssize(demands.holders(demand)) + std::ssize(demands.receivers(demand));
    const std::span<const absl::int128> amounts{&shares.amounts[shares.first[d]],
                                                static_cast<size_t>(hosts)};
    hops += hosts * CountSections(amounts, demand.bytes, shares.unit);
    RETURN_IF_ERROR(CheckHopCount("relay", hops));
  }
  return absl::OkStatus();
}

absl::StatusOr<HostRoutes> RouteByFlow(const Demands& demands, const HostNetwork& network,
                                       const Fraction& seconds, int64_t fan_out) {
  const SendShares shares = ComputeSendShares(demands, network, seconds);
  RETURN_IF_ERROR(CheckPieces(demands, shares));
  return RoundShares(demands, shares, network, fan_out);
}

}  // namespace crossmesh
