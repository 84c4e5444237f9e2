#include "planner/redistribute/planning/index_parts.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Where an index may be cut apart so that every digit of all types is in one part: ascending.
std::vector<int64_t> Boundaries(int64_t elements, std::span<const TypeDigits> types,
                                std::span<const int64_t> more) {
  std::vector<int64_t> all = {1, elements};
  all.insert(all.end(), more.begin(), more.end());
  for (const TypeDigits& type : types) {
    for (const IndexDigit& digit : type.digits()) {
      all.push_back(digit.low);
      all.push_back(digit.high);
    }
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  std::vector<int64_t> kept;
  for (const int64_t boundary : all) {
    const bool is_comparable = std::ranges::all_of(
        all, [&](int64_t other) { return other % boundary == 0 || boundary % other == 0; });
    const bool is_inside = std::ranges::any_of(types, [&](const TypeDigits& type) {
      return std::ranges::any_of(type.digits(), [&](const IndexDigit& digit) {
        return digit.low < boundary && boundary < digit.high;
      });
    });
    if (is_comparable && !is_inside) kept.push_back(boundary);
  }
  return kept;
}

bool IsCut(std::span<const TypeDigits> types, int64_t low, int64_t high) {
  return std::ranges::any_of(types,
                             [&](const TypeDigits& type) { return type.Touches(low, high); });
}

}  // namespace

TypeDigits::TypeDigits(const TypeSpace& space, const LocalType& type) {
  int64_t below = 1;
  for (int d = space.shape().rank() - 1; d >= 0; --d) {
    const int64_t length = space.shape()[d];
    if (length == 1) continue;
    std::vector<IndexDigit> of_dimension;
    for (const DimensionCut& cut : type.dimensions[d]) {
      const int64_t size = space.atoms()[cut.atom].size;
      if (cut.stride == 0) uneven_.push_back({below, below * length});
      of_dimension.push_back(
          cut.stride == 0 ? IndexDigit{below, below * length, cut.atom}
                          : IndexDigit{cut.stride * below, cut.stride * below * size, cut.atom});
    }
    digits_.insert(digits_.begin(), of_dimension.begin(), of_dimension.end());
    below *= length;
  }
}

bool TypeDigits::Touches(int64_t low, int64_t high) const {
  return std::ranges::any_of(
      digits_, [&](const IndexDigit& digit) { return digit.low < high && low < digit.high; });
}

bool TypeDigits::IsUneven(int64_t low, int64_t high) const {
  return std::ranges::any_of(
      uneven_, [&](const IndexPart& part) { return part.low < high && low < part.high; });
}

SlabPlace SlabPlaceOf(int64_t elements, std::span<const TypeDigits> types) {
  constexpr int64_t kSlabsWanted = 64;
  const std::vector<int64_t> boundaries = Boundaries(elements, types, {});
  SlabPlace place;
  for (size_t i = 1; i < boundaries.size(); ++i) {
    const auto [low, high] = std::pair(boundaries[i - 1], boundaries[i]);
    if (IsCut(types, low, high)) continue;
    const int64_t length = high / low;
    if (length >= kSlabsWanted || length > place.length) {
      place = {.stride = low, .length = length};
    }
  }
  return place;
}

std::vector<IndexPart> PartsOf(int64_t elements, std::span<const TypeDigits> types,
                               const SlabPlace& place, int64_t slabs) {
  const int64_t slab_high = place.stride * place.length;
  const int64_t slab_low = slab_high / slabs;
  std::vector<int64_t> more;
  if (slabs > 1) more = {slab_low, slab_high};
  const std::vector<int64_t> boundaries = Boundaries(elements, types, more);
  std::vector<IndexPart> parts;
  for (size_t i = boundaries.size() - 1; i > 0; --i) {
    const auto [low, high] = std::pair(boundaries[i - 1], boundaries[i]);
    const bool is_slab = slabs > 1 && low == slab_low && high == slab_high;
    // What neither cuts is one part with its neighbour.
    if (!is_slab && !IsCut(types, low, high) && !parts.empty() && !parts.back().is_slab &&
        parts.back().low == high && !IsCut(types, parts.back().low, parts.back().high)) {
      parts.back().low = low;
    } else {
      parts.push_back({.low = low, .high = high, .is_slab = is_slab});
    }
  }
  return parts;
}

std::string AxisName(int32_t atom) { return absl::StrCat("a", atom); }

std::optional<std::vector<std::string>> CutsOf(const TypeDigits& type, const IndexPart& part) {
  std::vector<std::string> axes;
  int64_t top = part.high;
  const bool is_uneven = type.IsUneven(part.low, part.high);
  for (const IndexDigit& digit : type.digits()) {
    if (digit.high <= part.low || digit.low >= part.high) continue;
    if (!is_uneven && (digit.high != top || digit.low % part.low != 0)) return std::nullopt;
    axes.push_back(AxisName(digit.atom));
    top = digit.low;
  }
  return axes;
}

}  // namespace crossmesh
