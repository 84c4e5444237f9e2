#include "planner/redistribute/latency_estimate.h"

#include <algorithm>
#include <cmath>

namespace crossmesh {

LatencyEstimate::LatencyEstimate(const SearchSpace& space, const StepPrices& prices)
    : space_(space),
      prices_(prices),
      message_(prices.LeastMessageSeconds(0)),
      across_(prices.LeastMessageSeconds(1) - message_) {}

double LatencyEstimate::LeastFor(int64_t product) {
  if (product <= 1) return 0;
  const auto found = least_for_.find(product);
  if (found != least_for_.end()) return found->second;
  const double step = prices_.seconds_per_step();
  double least = step + static_cast<double>(product - 1) * message_;
  for (int64_t group = 2; group < product; ++group) {
    const double first = step + static_cast<double>(group - 1) * message_;
    if (first >= least) break;
    least = std::min(least, first + LeastFor((product + group - 1) / group));
  }
  return least_for_[product] = least;
}

// The product of the sizes of strays and leftovers that are not on the fastest links.
int64_t LatencyEstimate::DisplacedAcross(const PackedType& type) const {
  int64_t product = 1;
  for (int atom = 0; atom < space_.atoms(); ++atom) {
    const bool displaced = type[atom] >= kFirstDigit && type[atom] != space_.destination()[atom];
    if (displaced && prices_.level(atom) > 0) product *= space_.size(atom);
  }
  return product;
}

double LatencyEstimate::Seconds(const PackedType& type, const Displacement& displaced,
                                const LocalSizes& sizes) {
  const int64_t now = std::max<int64_t>(sizes.now, 1);
  if (displaced.sums > 1) {
    return LeastFor(displaced.sums) + LeastFor((sizes.wanted + now - 1) / now);
  }
  if (displaced.strays == 1 && displaced.leftovers == 1) return 0;
  const int64_t across = across_ > 0 ? DisplacedAcross(type) : 1;
  const double moved = LeastFor(displaced.strays * displaced.leftovers) +
                       across_ * std::ceil(std::log2(static_cast<double>(across)));
  const double permuted = prices_.seconds_per_step() + message_ + (across > 1 ? across_ : 0) +
                          LeastFor((displaced.missing_cuts * sizes.wanted + now - 1) / now);
  return std::min(moved, permuted);
}

}  // namespace crossmesh
