#include "client/drawing/time_axis.h"

#include <array>
#include <cmath>

namespace crossmesh {
namespace {

constexpr std::array<TimeUnit, 4> kUnits = {TimeUnit{"s", 1}, TimeUnit{"ms", 1e-3},
                                            TimeUnit{"us", 1e-6}, TimeUnit{"ns", 1e-9}};

}  // namespace

TimeUnit UnitFor(double seconds) {
  for (const TimeUnit& unit : kUnits) {
    if (seconds >= unit.seconds) return unit;
  }
  return kUnits.back();
}

double StepFor(double whole) {
  const double power = std::pow(10, std::floor(std::log10(whole / 10)));
  for (const double factor : {1, 2, 5}) {
    if (whole / (factor * power) <= 10) return factor * power;
  }
  return 10 * power;
}

}  // namespace crossmesh
