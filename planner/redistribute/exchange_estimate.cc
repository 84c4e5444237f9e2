#include "planner/redistribute/exchange_estimate.h"

#include <algorithm>
#include <cmath>

namespace crossmesh {
namespace {

// What an all-to-all of so many devices, or of two if these are fewer, moves of a local array.
double Share(double members) { return 1 - 1 / members; }
double ShareOfMany(double members) { return Share(std::max(members, 2.0)); }

// In units of m.
double WithoutPermute(const Displacement& displaced) {
  const auto strays = static_cast<double>(displaced.strays);
  if (displaced.blocked == 1) return Share(strays);
  const auto blocked = static_cast<double>(displaced.blocked);
  const auto blockers = static_cast<double>(displaced.blockers);
  const auto rest = static_cast<double>(displaced.bystanders);
  // Steps are cheaper by atom the more they move, so the rest goes with one of them.
  const double two =
      std::min(Share(blockers) + Share(blocked * rest), Share(blockers * rest) + Share(blocked));
  const double three = 2 * Share(2) + ShareOfMany(strays / 4);
  const double sliced = 1 + Share(std::max(strays / 2, 1.0));
  return std::min({two, three, sliced});
}

}  // namespace

ExchangeEstimate EstimateExchange(const Displacement& displacement, const LocalSizes& sizes) {
  if (displacement.strays == 1 && displacement.leftovers == 1) return {};  // slices will do
  const double permuted = 1 + Share(static_cast<double>(displacement.missing_beyond));
  const double exchanged = std::min(WithoutPermute(displacement), permuted);
  const int64_t least_local =
      exchanged > 1 ? sizes.now / displacement.replicated : std::min(sizes.now, sizes.wanted);
  // Rounded down, apart from what floating point adds.
  const double elements = std::floor((exchanged - 1) * static_cast<double>(least_local) + 1e-6);
  const bool twice = displacement.blocked > 1 && displacement.missing_beyond > 1;
  return {.elements = sizes.wanted + static_cast<int64_t>(elements),
          .communicating = twice ? 2 : 1};
}

}  // namespace crossmesh
