#pragma once

#include "client/drawing/drawn_plan.h"
#include "client/drawing/host_places.h"

#include <cstddef>
#include <string>
#include <vector>

namespace crossmesh {

// A route from the side of one host to the side of another: horizontal at both ends, in one piece,
// or in two where it goes around other hosts.
struct RouteCurve {
  struct Piece {
    DrawnPoint from, from_control, to_control, to;  // a cubic Bezier curve
  };

  const DrawnRoute* route = nullptr;
  double width = 0;
  std::vector<Piece> pieces;

  const DrawnPoint& end() const { return pieces.back().to; }
  bool ends_rightwards() const { return pieces.back().to_control.x < pieces.back().to.x; }
  // 0 <= part <= 1, from its begin to its end.
  DrawnPoint At(double part) const;
};

struct RouteCurves {
  static constexpr size_t kRoutesMax = 120;

  std::vector<RouteCurve> curves;  // the widest first
  size_t left_out = 0;             // beyond kRoutesMax, or of hosts that have no place
};

// Curves as wide as their bytes, and no wider than that ends at one NIC can be told apart; around
// hosts, where there is room. The arguments must outlive the result.
RouteCurves PlaceRoutes(const DrawnPlan& drawn, const NetworkPlaces& places);

}  // namespace crossmesh
