#include "planner/redistribute/missing_estimate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

namespace crossmesh {
namespace {

using PlacedDigit = MissingEstimate::PlacedDigit;

bool Coupled(const Digit& a, const Digit& b) {
  return a.stride % (b.stride * b.size) != 0 && b.stride % (a.stride * a.size) != 0;
}

std::vector<PlacedDigit> DigitsIn(int dimension, const SearchSpace& space, const PackedType& type) {
  std::vector<PlacedDigit> placed;
  for (int atom = 0; atom < space.atoms(); ++atom) {
    if (type[atom] < kFirstDigit) continue;
    const Digit& digit = space.digits()[type[atom] - kFirstDigit];
    if (digit.dimension == dimension) placed.push_back({atom, &digit});
  }
  return placed;
}

}  // namespace

MissingEstimate::MissingEstimate(const SearchSpace& space)
    : space_(space),
      wanted_(space.LocalElements(space.destination())),
      fixed_(wanted_),
      seen_(space.types().shape().rank()),
      independent_(space.types().shape().rank()),
      coupled_(space.types().shape().rank()),
      leaves_out_(space.digits().size() * space.digits().size(), -1) {
  for (int dimension = 0; dimension < space.types().shape().rank(); ++dimension) {
    wanted_digits_.push_back(DigitsIn(dimension, space, space.destination()));
    wanted_lengths_.push_back(space.types().shape()[dimension]);
    for (const PlacedDigit& placed : wanted_digits_.back()) {
      wanted_lengths_.back() /= placed.digit->size;
    }
    if (!space.is_fixed(dimension)) fixed_ /= std::max<int64_t>(wanted_lengths_.back(), 1);
  }
  for (const Digit& digit : space.digits()) {
    Relation& relation = relations_.emplace_back();
    for (const PlacedDigit& wanted : wanted_digits_[digit.dimension]) {
      relation.wanted_by_any |= digit == *wanted.digit;
      relation.coupled[wanted.atom] = digit != *wanted.digit && Coupled(digit, *wanted.digit);
    }
  }
}

// Whether some coordinates on both digits have no index: then there is a device that has nothing in
// common, whatever else it is to have.
bool MissingEstimate::LeavesOut(const Digit& held, const Digit& wanted) {
  const int64_t first = &held - space_.digits().data();
  const int64_t second = &wanted - space_.digits().data();
  int8_t& known = leaves_out_[first * static_cast<int64_t>(space_.digits().size()) + second];
  if (known >= 0) return known == 1;
  const int64_t unit = std::gcd(held.stride, wanted.stride);
  const int64_t period = std::lcm(held.stride * held.size, wanted.stride * wanted.size);
  std::vector<bool> seen(held.size * wanted.size, false);
  for (int64_t index = 0; index < period; index += unit) {
    seen[index / held.stride % held.size * wanted.size + index / wanted.stride % wanted.size] =
        true;
  }
  known = std::ranges::find(seen, false) == seen.end() ? 0 : 1;
  return known == 1;
}

// Counts on the indices, in units of the finest stride, for all coordinates of the atoms that cut
// the dimension now or at the destination.
MissingEstimate::Range MissingEstimate::CountIndices(int dimension, const PackedType& type) const {
  std::vector<PlacedDigit> digits = DigitsIn(dimension, space_, type);
  for (const PlacedDigit& wanted : wanted_digits_[dimension]) digits.push_back(wanted);
  int64_t unit = space_.types().shape()[dimension];
  for (const PlacedDigit& placed : digits) unit = std::gcd(unit, placed.digit->stride);
  std::vector<int64_t> weights(kSearchAtomsMax, 0);  // of an atom's coordinate in a number of all
  int64_t combinations = 1;
  for (const PlacedDigit& placed : digits) {
    if (weights[placed.atom] != 0) continue;
    weights[placed.atom] = combinations;
    combinations *= placed.digit->size;
  }
  std::vector<int64_t> counts(combinations, 0);
  std::array<int64_t, kSearchAtomsMax> coordinates{};
  for (int64_t index = 0; index < space_.types().shape()[dimension]; index += unit) {
    coordinates.fill(-1);
    bool possible = true;
    int64_t combination = 0;
    for (const PlacedDigit& placed : digits) {
      const int64_t coordinate = index / placed.digit->stride % placed.digit->size;
      int64_t& known = coordinates[placed.atom];
      possible &= known < 0 || known == coordinate;
      if (known < 0) combination += coordinate * weights[placed.atom];
      known = coordinate;
    }
    if (possible) counts[combination] += unit;
  }
  const auto [least, most] = std::ranges::minmax(counts);
  return {least, most};
}

MissingEstimate::Range MissingEstimate::CommonIndices(int dimension, const PackedType& type) {
  PackedType key{};
  for (const PlacedDigit& held : DigitsIn(dimension, space_, type)) {
    key[held.atom] = type[held.atom];
  }
  const auto [found, added] = seen_[dimension].try_emplace(key);
  if (added) found->second = CountIndices(dimension, type);
  return found->second;
}

// Whether some device has nothing of a dimension of what it is to have, as far as single digits
// tell; else how many independent cuts the dimensions have, and which have others.
bool MissingEstimate::FindCuts(const PackedType& type) {
  std::ranges::fill(independent_, 1);
  coupled_.assign(coupled_.size(), false);
  for (int atom = 0; atom < space_.atoms(); ++atom) {
    if (type[atom] < kFirstDigit || type[atom] == space_.destination()[atom]) continue;
    const int number = type[atom] - kFirstDigit;
    const Digit& held = space_.digits()[number];
    const Relation& relation = relations_[number];
    if (relation.wanted_by_any) return true;
    if (relation.coupled.none()) {
      independent_[held.dimension] *= held.size;
      continue;
    }
    coupled_[held.dimension] = true;
    for (const PlacedDigit& wanted : wanted_digits_[held.dimension]) {
      if (wanted.atom != atom && relation.coupled[wanted.atom] && LeavesOut(held, *wanted.digit)) {
        return true;
      }
    }
  }
  return false;
}

int64_t MissingEstimate::Elements(const PackedType& type) {
  const PackedType& destination = space_.destination();
  if (type == destination) return 0;
  for (int atom = 0; atom < space_.atoms(); ++atom) {
    if ((type[atom] == kPartialCode) != (destination[atom] == kPartialCode)) return wanted_;
  }
  if (FindCuts(type)) return wanted_;
  int64_t least = 1;
  int64_t most = 1;
  int varying = 0;
  for (int dimension = 0; dimension < space_.types().shape().rank(); ++dimension) {
    if (space_.is_fixed(dimension)) continue;
    const int64_t simple = wanted_lengths_[dimension] / independent_[dimension];
    const Range common =
        coupled_[dimension] ? CommonIndices(dimension, type) : Range{simple, simple};
    if (common.least == 0) return wanted_;
    least *= common.least;
    most *= common.most;
    varying += common.least != common.most ? 1 : 0;
  }
  // Coordinates that are worst for one dimension may be good for another.
  return wanted_ - fixed_ * (varying <= 1 ? least : most);
}

}  // namespace crossmesh
