#include "planner/redistribute/search_space.h"

#include "common/base/check.h"

#include <algorithm>
#include <tuple>

namespace crossmesh {
namespace {

bool CutByRule(const std::vector<DimensionCut>& cuts) {
  return !cuts.empty() && cuts.front().stride == 0;
}

bool Conflict(const Digit& a, const Digit& b) {
  return a.dimension == b.dimension && a.stride % (b.stride * b.size) != 0 &&
         b.stride % (a.stride * a.size) != 0;
}

}  // namespace

std::optional<SearchSpace> SearchSpace::Create(const TypeSpace& space) {
  if (space.atom_count() > kSearchAtomsMax) return std::nullopt;
  SearchSpace made(space);
  if (!made.FindFixedDimensions()) return std::nullopt;
  made.ListDigits();
  made.source_ = made.Pack(space.source());
  made.destination_ = made.Pack(space.destination());
  return made;
}

bool SearchSpace::FindFixedDimensions() {
  for (int dimension = 0; dimension < types_->shape().rank(); ++dimension) {
    const std::vector<DimensionCut>& source = types_->source().dimensions[dimension];
    const std::vector<DimensionCut>& destination = types_->destination().dimensions[dimension];
    const bool fixed = CutByRule(source) || CutByRule(destination);
    if (fixed && source != destination) return false;
    fixed_.push_back(fixed);
    const int64_t parts = fixed ? types_->Parts(source) : 1;
    elements_ *= (types_->shape()[dimension] + parts - 1) / parts;
  }
  return true;
}

void SearchSpace::Add(const Digit& digit) {
  if (digits_.size() >= kDigitsMax || std::ranges::find(digits_, digit) != digits_.end()) return;
  digits_.push_back(digit);
}

void SearchSpace::AddDigits(const LocalType& type) {
  for (int dimension = 0; dimension < types_->shape().rank(); ++dimension) {
    if (fixed_[dimension]) continue;
    for (const DimensionCut& cut : type.dimensions[dimension]) {
      Add({dimension, cut.stride, size(cut.atom)});
    }
  }
}

// Strides finer than one part for each device serve nothing that a coarser one does not.
void SearchSpace::AddFreeDigits(int dimension, size_t digits_max) {
  const int64_t length = types_->shape()[dimension];
  if (fixed_[dimension] || length == 0) return;
  size_t added = 0;
  for (int64_t parts = 1; parts <= std::min(length, types_->devices()); ++parts) {
    if (length % parts != 0) continue;
    for (const int64_t size : sizes_) {
      const int64_t stride = length / parts;
      if (stride % size != 0 || added == digits_max) continue;
      Add({dimension, stride / size, size});
      ++added;
    }
  }
}

void SearchSpace::ListDigits() {
  for (int atom = 0; atom < atoms(); ++atom) sizes_.push_back(size(atom));
  std::ranges::sort(sizes_);
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  // What the ends need comes first, so that no limit leaves it out.
  AddDigits(types_->source());
  AddDigits(types_->destination());
  const size_t rank = std::max(types_->shape().rank(), 1);
  for (int dimension = 0; dimension < types_->shape().rank(); ++dimension) {
    AddFreeDigits(dimension, (kDigitsMax - 2 * kSearchAtomsMax) / rank);
  }
  std::ranges::sort(digits_, {}, [](const Digit& digit) {
    return std::tuple(digit.dimension, -digit.stride, digit.size);
  });
  by_size_.resize(sizes_.size());
  for (size_t i = 0; i < digits_.size(); ++i) {
    DigitSet& set = conflicts_.emplace_back();
    for (size_t j = 0; j < digits_.size(); ++j) set[j] = Conflict(digits_[i], digits_[j]);
    const auto found = std::ranges::find(sizes_, digits_[i].size);
    by_size_[found - sizes_.begin()].push_back(static_cast<int>(i));
  }
}

std::span<const int> SearchSpace::digits_of_size(int64_t size) const {
  return by_size_[std::ranges::find(sizes_, size) - sizes_.begin()];
}

std::optional<int> SearchSpace::Find(const Digit& digit) const {
  const auto key = [](const Digit& of) { return std::tuple(of.dimension, -of.stride, of.size); };
  const auto found = std::ranges::lower_bound(digits_, key(digit), {}, key);
  if (found == digits_.end() || *found != digit) return std::nullopt;
  return static_cast<int>(found - digits_.begin());
}

PackedType SearchSpace::Pack(const LocalType& type) const {
  PackedType packed{};
  for (const int32_t atom : type.partial) packed[atom] = kPartialCode;
  for (int dimension = 0; dimension < types_->shape().rank(); ++dimension) {
    for (const DimensionCut& cut : type.dimensions[dimension]) {
      if (fixed_[dimension]) {
        packed[cut.atom] = kFixedCode;
        continue;
      }
      const std::optional<int> digit = Find({dimension, cut.stride, size(cut.atom)});
      CHECK(digit.has_value());
      packed[cut.atom] = static_cast<uint8_t>(kFirstDigit + *digit);
    }
  }
  return packed;
}

int64_t SearchSpace::LocalElements(const PackedType& type) const {
  int64_t parts = 1;
  for (int atom = 0; atom < atoms(); ++atom) {
    if (type[atom] >= kFirstDigit) parts *= size(atom);
  }
  return elements_ / parts;
}

LocalType SearchSpace::Unpack(const PackedType& type) const {
  LocalType unpacked;
  unpacked.dimensions.resize(types_->shape().rank());
  for (size_t dimension = 0; dimension < fixed_.size(); ++dimension) {
    if (fixed_[dimension]) unpacked.dimensions[dimension] = types_->source().dimensions[dimension];
  }
  for (int32_t atom = 0; atom < atoms(); ++atom) {
    if (type[atom] == kPartialCode) unpacked.partial.push_back(atom);
    if (type[atom] < kFirstDigit) continue;
    const Digit& digit = digits_[type[atom] - kFirstDigit];
    unpacked.dimensions[digit.dimension].push_back({.atom = atom, .stride = digit.stride});
  }
  for (std::vector<DimensionCut>& cuts : unpacked.dimensions) {
    std::ranges::stable_sort(cuts, std::ranges::greater(), &DimensionCut::stride);
  }
  return unpacked;
}

}  // namespace crossmesh
