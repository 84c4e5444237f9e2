#pragma once

#include "common/plan/plan.h"
#include "planner/network/cheapest_delivery.h"
#include "planner/network/demands.h"
#include "planner/network/host_network.h"
#include "planner/network/uplink_flow.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A byte range of a group, from the end of the piece before to `end`, that goes one way. The hops
// bring it to every receiver host once; those of one root lie together, parents first.
struct Piece {
  int64_t end = 0;
  int64_t first_hop = 0;
  int64_t end_hop = 0;
};

// Routes between hosts for every group. A group whose shares are kSole has no pieces: its only
// route is obvious.
struct HostRoutes {
  std::vector<Piece> pieces;
  std::vector<HostHop> hops;
  std::vector<int64_t> first_piece;  // group g's pieces are pieces[first_piece[g] .. [g + 1])
  std::vector<DueTime> due;          // of each piece; empty: all are due all the time

  std::span<const Piece> PiecesOf(int64_t group) const {
    return {pieces.data() + first_piece[group], pieces.data() + first_piece[group + 1]};
  }
  std::span<const HostHop> HopsOf(const Piece& piece) const {
    return {hops.data() + piece.first_hop, hops.data() + piece.end_hop};
  }

  // Calls `visit` with the hops and the bytes of each piece of the demands that these are the
  // routes of, and of the only route of those that have none: from their holder to their receiver.
  template <typename Visit>
  void ForEachPiece(const Demands& demands, Visit visit) const {
    for (size_t d = 0; d < demands.demands.size(); ++d) {
      const Demand& demand = demands.demands[d];
      const std::span<const Piece> of_demand = PiecesOf(static_cast<int64_t>(d));
      if (of_demand.empty()) {
        const HostRank holder = demands.holders(demand)[0];
        const HostHop hop{.root = holder, .from = holder, .to = demands.receivers(demand)[0]};
        visit(std::span<const HostHop>(&hop, 1), demand.bytes);
      }
      int64_t begin = 0;
      for (const Piece& piece : of_demand) {
        visit(HopsOf(piece), piece.end - begin);
        begin = piece.end;
      }
    }
  }
};

// Turns what each host sends into routes.
//
// Out-degrees are rounded to whole ones (WholeDegrees), which cuts a group into pieces: at every
// byte the degrees add up to the number of receivers, and the holders' to at least one. In each
// piece receivers in order of falling degree take the first open place of a tree: degrees of one
// give a chain, larger ones fan out near the root. Ties go by rack, those of the roots first, then
// by rank, in chains from the first root on. With a `fan_out` of more than 1, chains become as many
// trees (FanOut), each of a part of the bytes, and each host still sends what it is to send.
//
// Example: holders send 1.5 w and receivers a, b, c send 1 w, 0.5 w and 0: the first half of the
// bytes has degrees 2, 1, 0, 0 and goes to a and b, and from a to c; the second half has 1, 1, 1, 0
// and is a chain.
HostRoutes RoundShares(const Demands& demands, const SendShares& shares, const HostNetwork& network,
                       int64_t fan_out = 1);

// ResourceExhausted when the shares cut groups into so many pieces that these, each to all of its
// group's hosts, have more hops than a plan may have. Cost: that of sorting hosts, once a group.
absl::Status CheckPieces(const Demands& demands, const SendShares& shares);

// The routes of the shares that need no longer than `seconds`, at least the bound; racks' uplinks
// are not considered. ResourceExhausted as above.
absl::StatusOr<HostRoutes> RouteByFlow(const Demands& demands, const HostNetwork& network,
                                       const Fraction& seconds, int64_t fan_out = 1);

}  // namespace crossmesh
