#include "planner/redistribute/exchange_estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace crossmesh {
namespace {

constexpr double kStrayShare = 0.25;

// Sizes as products over atoms; N of the comment.
struct Crowd {
  int64_t strays = 1;         // product of the sizes of atoms that cut elsewhere than wanted
  int64_t leftovers = 1;      // of those that cut, and are wanted nowhere
  int64_t replicated = 1;     // of those that do not cut
  int64_t least_blocked = 0;  // size of the smallest stray whose place is taken; 0: none is
  int64_t least_blocker = INT64_MAX;  // of the smallest that takes one
  bool leftover_blocks = false;
};

Crowd Count(const SearchSpace& space, const PackedType& type) {
  Crowd crowd;
  for (int atom = 0; atom < space.atoms(); ++atom) {
    const int64_t size = space.size(atom);
    const uint8_t goal = space.destination()[atom];
    if (type[atom] == kReplicatedCode) crowd.replicated *= size;
    if (type[atom] < kFirstDigit || type[atom] == goal) continue;
    if (goal < kFirstDigit) {
      crowd.leftovers *= size;
      continue;
    }
    crowd.strays *= size;
    const DigitSet& conflicts = space.conflicts(goal - kFirstDigit);
    for (int other = 0; other < space.atoms(); ++other) {
      if (type[other] < kFirstDigit || !conflicts[type[other] - kFirstDigit]) continue;
      if (crowd.least_blocked == 0 || size < crowd.least_blocked) crowd.least_blocked = size;
      crowd.least_blocker = std::min(crowd.least_blocker, space.size(other));
      crowd.leftover_blocks |= space.destination()[other] < kFirstDigit;
    }
  }
  return crowd;
}

// The product of what dimensions are cut too little, beyond what replicated atoms can cut.
int64_t MissingCuts(const SearchSpace& space, const PackedType& type, int64_t replicated) {
  std::vector<int64_t> now(space.types().shape().rank(), 1);
  std::vector<int64_t> wanted(now.size(), 1);
  for (int atom = 0; atom < space.atoms(); ++atom) {
    if (type[atom] >= kFirstDigit) {
      now[space.digits()[type[atom] - kFirstDigit].dimension] *= space.size(atom);
    }
    const uint8_t goal = space.destination()[atom];
    if (goal >= kFirstDigit) {
      wanted[space.digits()[goal - kFirstDigit].dimension] *= space.size(atom);
    }
  }
  int64_t missing = 1;
  for (size_t dimension = 0; dimension < now.size(); ++dimension) {
    missing *= wanted[dimension] / std::gcd(wanted[dimension], now[dimension]);
  }
  return missing / std::gcd(missing, replicated);
}

double Share(double members) { return 1 - 1 / members; }

// In units of m, by all-to-alls and early gathers.
double WithoutPermute(const Crowd& crowd) {
  const auto strays = static_cast<double>(crowd.strays);
  if (crowd.least_blocked == 0) return Share(strays);
  const auto blocked = static_cast<double>(crowd.least_blocked);
  const auto blocker = static_cast<double>(crowd.least_blocker);
  double least = std::min(Share(blocker) + Share(std::max(blocked, strays / blocker)),
                          Share(blocked) + Share(std::max(blocker, strays / blocked)));
  if (crowd.leftover_blocks) {
    // Gathered first, it doubles at least what the blocked ones then move.
    least = std::min({least, 2 * Share(strays), 2 * Share(blocked) + Share(strays / blocked)});
  }
  return least;
}

}  // namespace

ExchangeEstimate EstimateExchange(const SearchSpace& space, const PackedType& type) {
  if (type == space.destination()) return {};
  const Crowd crowd = Count(space, type);
  if (crowd.strays == 1 && crowd.leftovers == 1) return {};  // slices will do
  const int64_t wanted = space.LocalElements(space.destination());
  const double apart = WithoutPermute(crowd);
  const double permuted =
      1 + Share(static_cast<double>(MissingCuts(space, type, crowd.replicated)));
  const double exchanged = std::min(apart, permuted);
  ExchangeEstimate estimate{.communicating = crowd.least_blocked > 0 && permuted > 1 ? 2 : 1};
  const int64_t least_local = exchanged > 1 ? space.LocalElements(type) / crowd.replicated
                                            : std::min(space.LocalElements(type), wanted);
  // Rounded down, apart from what floating point adds.
  estimate.elements =
      wanted +
      static_cast<int64_t>(std::floor((exchanged - 1) * static_cast<double>(least_local) + 1e-6));
  return estimate;
}

double Disorder(const SearchSpace& space, const PackedType& type) {
  double bits = std::log2(static_cast<double>(MissingCuts(space, type, 1)));
  for (int atom = 0; atom < space.atoms(); ++atom) {
    const uint8_t goal = space.destination()[atom];
    if (goal < kFirstDigit || type[atom] == goal) continue;
    bits += kStrayShare * std::log2(static_cast<double>(space.size(atom)));
  }
  return bits;
}

}  // namespace crossmesh
