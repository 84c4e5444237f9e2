#include "controller/reshard/host_routes.h"

#include "common/base/check.h"

#include <algorithm>
#include <tuple>

#include <absl/numeric/int128.h>

namespace crossmesh {
namespace {

// The bytes at which a host sends one copy more than its whole degree: [begin, end), or, when the
// range wraps around, all but [end, begin).
struct Degree {
  int64_t whole = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool wraps = false;

  int64_t At(int64_t byte) const {
    const bool more = wraps ? byte >= begin || byte < end : byte >= begin && byte < end;
    return whole + (more ? 1 : 0);
  }
};

// Degrees of holders and receivers, by wrap-around over `bytes`.
std::vector<Degree> Degrees(std::span<const absl::int128> amounts, int64_t bytes,
                            absl::int128 unit) {
  const absl::int128 size = unit * bytes;
  absl::int128 at = 0;
  std::vector<Degree> degrees;
  for (const absl::int128 amount : amounts) {
    Degree degree{.whole = static_cast<int64_t>(amount / size)};
    const absl::int128 end = at + amount % size;
    degree.begin = static_cast<int64_t>(at / unit);
    degree.wraps = end > size;
    at = degree.wraps ? end - size : end;
    degree.end = static_cast<int64_t>(at / unit);
    if (at == size) at = 0;
    degrees.push_back(degree);
  }
  return degrees;
}

// Ends of the ranges in which no degree changes, ascending; the last is `bytes`.
std::vector<int64_t> PieceEnds(std::span<const Degree> degrees, int64_t bytes) {
  std::vector<int64_t> ends = {bytes};
  for (const Degree& degree : degrees) {
    if (degree.begin > 0) ends.push_back(degree.begin);
    if (degree.end > 0) ends.push_back(degree.end);
  }
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

class PieceRouter {
 public:
  PieceRouter(const HostNetwork& network, std::span<const int32_t> holders,
              std::span<const int32_t> receivers)
      : network_(network), holders_(holders), receivers_(receivers) {}

  // Appends the hops of the bytes from `byte` to the end of their piece.
  void Route(std::span<const Degree> degrees, int64_t byte, std::vector<HostHop>& hops) {
    open_.clear();
    for (size_t i = 0; i < holders_.size(); ++i) {
      Open({holders_[i], holders_[i]}, degrees[i].At(byte));
    }
    const size_t first = hops.size();
    size_t taken = 0;
    for (const auto& [host, degree] : ByFallingDegree(degrees, byte)) {
      CHECK(taken < open_.size()) << "degrees of " << receivers_.size() << " receivers";
      const Place place = open_[taken++];
      hops.push_back({.root = place.root, .from = place.host, .to = host});
      Open({place.root, host}, degree);
    }
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

  std::vector<Receiver> ByFallingDegree(std::span<const Degree> degrees, int64_t byte) const {
    std::vector<Receiver> result;
    for (size_t i = 0; i < receivers_.size(); ++i) {
      result.push_back({receivers_[i], degrees[holders_.size() + i].At(byte)});
    }
    std::ranges::sort(result, {}, [this](const Receiver& r) {
      const bool in_root_rack = std::ranges::any_of(
          open_, [&](const Place& p) { return RackOf(p.host) == RackOf(r.host); });
      return std::tuple(-r.degree, !in_root_rack, RackOf(r.host), r.host);
    });
    return result;
  }

  const HostNetwork& network_;
  const std::span<const int32_t> holders_;
  const std::span<const int32_t> receivers_;
  std::vector<Place> open_;  // places to be taken, in this order
};

}  // namespace

HostRoutes RoundShares(const Demands& demands, const SendShares& shares,
                       const HostNetwork& network) {
  HostRoutes routes;
  for (size_t d = 0; d < demands.demands.size(); ++d) {
    routes.first_piece.push_back(static_cast<int64_t>(routes.pieces.size()));
    if (shares.first[d] == SendShares::kSole) continue;
    const Demand& demand = demands.demands[d];
    const std::span<const int32_t> holders = demands.holders(demand);
    const std::span<const int32_t> receivers = demands.receivers(demand);
    const std::vector<Degree> degrees =
        Degrees({&shares.amounts[shares.first[d]], holders.size() + receivers.size()}, demand.bytes,
                shares.unit);
    PieceRouter router(network, holders, receivers);
    int64_t begin = 0;
    for (const int64_t end : PieceEnds(degrees, demand.bytes)) {
      const int64_t first_hop = static_cast<int64_t>(routes.hops.size());
      router.Route(degrees, begin, routes.hops);
      routes.pieces.push_back({.end = end,
                               .first_hop = first_hop,
                               .end_hop = static_cast<int64_t>(routes.hops.size())});
      begin = end;
    }
  }
  routes.first_piece.push_back(static_cast<int64_t>(routes.pieces.size()));
  return routes;
}

}  // namespace crossmesh
