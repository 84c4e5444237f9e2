#include "planner/redistribute/displacement.h"

#include "planner/redistribute/sub_axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace crossmesh {
namespace {

constexpr double kStrayShare = 0.25;

}  // namespace

DisplacementCount::DisplacementCount(const SearchSpace& space) : space_(space) {
  in_whose_way_.resize(space.digits().size());
  for (const int64_t size : space.sizes()) {
    for (const int64_t prime : PrimeFactors(size)) {
      if (std::ranges::find(primes_, prime) == primes_.end()) primes_.push_back(prime);
    }
  }
  dimensions_.resize(space.types().shape().rank());
  wanted_cuts_.resize(space.types().shape().rank() * primes_.size(), 0);
  for (int atom = 0; atom < space.atoms(); ++atom) {
    stray_bits_.push_back(kStrayShare * std::log2(static_cast<double>(space.size(atom))));
    const std::vector<int64_t> factors = PrimeFactors(space.size(atom));
    const uint8_t goal = space.destination()[atom];
    goals_.push_back({.code = goal, .size = space.size(atom)});
    for (size_t digit = 0; goal >= kFirstDigit && digit < in_whose_way_.size(); ++digit) {
      in_whose_way_[digit][atom] = space.conflicts(goal - kFirstDigit)[digit];
    }
    if (goal >= kFirstDigit) {
      dimensions_[space.digits()[goal - kFirstDigit].dimension].wanted *= space.size(atom);
    }
    for (size_t prime = 0; prime < primes_.size(); ++prime) {
      const auto exponent = static_cast<int16_t>(std::ranges::count(factors, primes_[prime]));
      exponents_.push_back(exponent);
      if (goal < kFirstDigit) continue;
      const int dimension = space.digits()[goal - kFirstDigit].dimension;
      wanted_cuts_[dimension * primes_.size() + prime] += exponent;
    }
  }
}

Displacement DisplacementCount::Of(const PackedType& type) {
  Displacement counted;
  CountPlaces(type, counted);
  CountMissingCuts(type, counted);
  counted.disorder += MissingBits(type);
  return counted;
}

double DisplacementCount::MissingBits(const PackedType& type) {
  std::array<uint8_t, kSearchAtomsMax> cuts;
  size_t count = 0;
  for (int atom = 0; atom < space_.atoms(); ++atom) {
    if (type[atom] >= kFirstDigit) cuts[count++] = type[atom];
  }
  // Digits are numbered by dimension, the most major first.
  std::sort(cuts.begin(), cuts.begin() + static_cast<std::ptrdiff_t>(count));
  for (size_t d = 0; d < dimensions_.size(); ++d) {
    dimensions_[d].parts = 1;
    dimensions_[d].low = space_.types().shape()[static_cast<int>(d)];
  }
  for (size_t i = 0; i < count; ++i) {
    const Digit& digit = space_.digits()[cuts[i] - kFirstDigit];
    CutDimension& dimension = dimensions_[digit.dimension];
    if (digit.stride * digit.size != dimension.low) continue;
    dimension.low = digit.stride;
    dimension.parts *= digit.size;
  }
  double bits = 0;
  for (const CutDimension& dimension : dimensions_) {
    const int64_t missing = dimension.wanted / std::gcd(dimension.wanted, dimension.parts);
    if (missing > 1) bits += std::log2(static_cast<double>(missing));
  }
  return bits;
}

void DisplacementCount::CountPlaces(const PackedType& type, Displacement& counted) const {
  // That are wanted where something cuts. Those in their places do not count below, and nothing
  // else can cut there.
  AtomSet blocked;
  for (size_t atom = 0; atom < goals_.size(); ++atom) {
    if (type[atom] >= kFirstDigit) blocked |= in_whose_way_[type[atom] - kFirstDigit];
  }
  for (size_t atom = 0; atom < goals_.size(); ++atom) {
    const Goal& goal = goals_[atom];
    const uint8_t now = type[atom];
    if (now == kReplicatedCode) counted.replicated *= goal.size;
    if (now == goal.code) continue;
    if (now == kPartialCode) counted.sums *= goal.size;
    const bool cuts = now >= kFirstDigit;
    const bool wants = goal.code >= kFirstDigit;
    const bool blocks = cuts && in_whose_way_[now - kFirstDigit].any();
    if (blocked[atom]) counted.blocked *= goal.size;
    if (blocks) counted.blockers *= goal.size;
    if (wants) counted.disorder += stray_bits_[atom];
    if (!cuts) continue;
    (wants ? counted.strays : counted.leftovers) *= goal.size;
    if (wants && !blocked[atom] && !blocks) counted.bystanders *= goal.size;
  }
}

void DisplacementCount::CountMissingCuts(const PackedType& type, Displacement& counted) {
  const size_t primes = primes_.size();
  left_ = wanted_cuts_;
  for (int atom = 0; atom < space_.atoms(); ++atom) {
    if (type[atom] < kFirstDigit) continue;
    const size_t first = space_.digits()[type[atom] - kFirstDigit].dimension * primes;
    for (size_t prime = 0; prime < primes; ++prime) {
      left_[first + prime] =
          static_cast<int16_t>(left_[first + prime] - exponents_[atom * primes + prime]);
    }
  }
  for (size_t prime = 0; prime < primes; ++prime) {
    int missing = 0;
    for (size_t i = prime; i < left_.size(); i += primes) missing += std::max<int>(left_[i], 0);
    if (missing == 0) continue;
    int replicated = 0;
    for (int atom = 0; atom < space_.atoms(); ++atom) {
      if (type[atom] == kReplicatedCode) replicated += exponents_[atom * primes + prime];
    }
    for (int i = 0; i < missing; ++i) {
      counted.missing_cuts *= primes_[prime];
      if (i >= replicated) counted.missing_beyond *= primes_[prime];
    }
  }
}

}  // namespace crossmesh
