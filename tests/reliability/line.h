#pragma once

#include <span>

namespace crossmesh {

struct Point {
  double x = 0;
  double y = 0;
};

// How steep the straight line is that is nearest to points, and by how much it may be wrong.
struct Slope {
  double value = 0;
  // Also where what is left beside the line goes on from one point to the next, as the noise of
  // memory does: such points count for fewer (n (1 - r) / (1 + r), r that of neighbours).
  double standard_error = 0;
};

// Of at least three points, in order of their x, of which two differ.
Slope SlopeOf(std::span<const Point> points);

}  // namespace crossmesh
