#include "tests/reliability/line.h"

#include "common/base/check.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace crossmesh {
namespace {

// How much of what is left at one point is still there at the next one.
double Persistence(std::span<const double> left) {
  double products = 0;
  double squares = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    squares += left[i] * left[i];
    if (i > 0) products += left[i] * left[i - 1];
  }
  return squares == 0 ? 0 : std::clamp(products / squares, 0.0, 0.99);
}

}  // namespace

Slope SlopeOf(std::span<const Point> points) {
  CHECK_GE(points.size(), 3U);
  const auto count = static_cast<double>(points.size());
  Point middle;
  for (const Point& point : points) {
    middle.x += point.x / count;
    middle.y += point.y / count;
  }
  double above = 0;
  double below = 0;
  for (const Point& point : points) {
    above += (point.x - middle.x) * (point.y - middle.y);
    below += (point.x - middle.x) * (point.x - middle.x);
  }
  CHECK_GT(below, 0);
  Slope slope = {.value = above / below};
  std::vector<double> left;
  double squares = 0;
  for (const Point& point : points) {
    left.push_back(point.y - middle.y - slope.value * (point.x - middle.x));
    squares += left.back() * left.back();
  }
  const double r = Persistence(left);
  slope.standard_error = std::sqrt(squares / (count - 2) / below * (1 + r) / (1 - r));
  return slope;
}

}  // namespace crossmesh
