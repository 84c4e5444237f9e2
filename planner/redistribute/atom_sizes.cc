#include "planner/redistribute/atom_sizes.h"

#include "planner/redistribute/sub_axis.h"

#include <algorithm>
#include <set>
#include <utility>

namespace crossmesh {
namespace {

// Where a part is at one end: a dimension and its place among those that cut it, or partial.
struct PartPlace {
  const SubAxis* part;
  int dimension;  // -1: partial
  int64_t before_in_dimension;
};

std::vector<PartPlace> PlacesOf(const RedistributionEnd& end) {
  std::vector<PartPlace> places;
  for (size_t dimension = 0; dimension < end.dimensions.size(); ++dimension) {
    int64_t before = 1;
    for (const SubAxis& part : end.dimensions[dimension]) {
      places.push_back({&part, static_cast<int>(dimension), before});
      before *= part.size;
    }
  }
  for (const PartialAxis& partial : end.partial) places.push_back({&partial.part, -1, 1});
  return places;
}

// Where the most major coordinate of an atom is at one end; {-2, 0} where it replicates.
std::pair<int, int64_t> PlaceOf(const SubAxis& atom, const std::vector<PartPlace>& places) {
  for (const PartPlace& place : places) {
    const SubAxis& part = *place.part;
    if (part.axis != atom.axis || atom.before < part.before ||
        atom.before >= part.before * part.size) {
      continue;
    }
    if (place.dimension < 0) return {-1, 0};
    return {place.dimension, place.before_in_dimension * (atom.before / part.before)};
  }
  return {-2, 0};
}

// All orders of the prime factors of an atom, ascending order first.
std::vector<std::vector<int64_t>> OrdersOf(int64_t size) {
  std::vector<int64_t> factors = PrimeFactors(size);
  std::vector<std::vector<int64_t>> orders;
  do {
    orders.push_back(factors);
  } while (std::ranges::next_permutation(factors).found);
  return orders;
}

// Appends a part, joined to the last one where it goes on from there.
void AppendJoined(const SubAxis& part, std::vector<SubAxis>& parts) {
  if (!parts.empty() && parts.back().axis == part.axis &&
      parts.back().before * parts.back().size == part.before) {
    parts.back().size *= part.size;
  } else {
    parts.push_back(part);
  }
}

// The parts of one end, with neighbours in one place joined.
std::vector<SubAxis> JoinedParts(const RedistributionEnd& end) {
  std::vector<SubAxis> all;
  for (const std::vector<SubAxis>& dimension : end.dimensions) {
    std::vector<SubAxis> joined;
    for (const SubAxis& part : dimension) AppendJoined(part, joined);
    all.insert(all.end(), joined.begin(), joined.end());
  }
  std::vector<SubAxis> partial;
  for (const PartialAxis& axis : end.partial) partial.push_back(axis.part);
  std::ranges::sort(partial);
  std::vector<SubAxis> joined;
  for (const SubAxis& part : partial) AppendJoined(part, joined);
  all.insert(all.end(), joined.begin(), joined.end());
  return all;
}

// Each way with each order of an atom's factors at the end of an axis.
std::vector<AtomSizes> Multiply(const std::vector<AtomSizes>& ways, size_t axis,
                                const std::vector<std::vector<int64_t>>& orders) {
  std::vector<AtomSizes> longer;
  for (const std::vector<int64_t>& order : orders) {
    for (const AtomSizes& way : ways) {
      AtomSizes& added = longer.emplace_back(way);
      added[axis].insert(added[axis].end(), order.begin(), order.end());
    }
  }
  return longer;
}

}  // namespace

AtomSizes NeededAtoms(const RedistributionRequest& request) {
  std::vector<std::set<int64_t>> boundaries(request.axes.size());
  for (const RedistributionEnd* end : {&request.source, &request.destination}) {
    for (const SubAxis& part : JoinedParts(*end)) {
      boundaries[part.axis].insert(part.before);
      boundaries[part.axis].insert(part.before * part.size);
    }
  }
  AtomSizes sizes(request.axes.size());
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    boundaries[axis].insert(request.axes[axis].size);
    int64_t before = 1;
    for (const int64_t boundary : boundaries[axis]) {
      if (boundary > before) sizes[axis].push_back(boundary / before);
      before = boundary;
    }
  }
  return sizes;
}

std::vector<AtomSizes> PrimeAtoms(const RedistributionRequest& request, size_t ways_max) {
  const std::vector<PartPlace> source = PlacesOf(request.source);
  const std::vector<PartPlace> destination = PlacesOf(request.destination);
  const AtomSizes needed = NeededAtoms(request);
  std::vector<AtomSizes> ways = {AtomSizes(needed.size())};
  for (size_t axis = 0; axis < needed.size(); ++axis) {
    SubAxis atom{.axis = static_cast<int32_t>(axis)};
    for (const int64_t size : needed[axis]) {
      atom.size = size;
      const bool stays = PlaceOf(atom, source) == PlaceOf(atom, destination);
      ways =
          Multiply(ways, axis, stays ? std::vector<std::vector<int64_t>>{{size}} : OrdersOf(size));
      if (ways.size() > ways_max) ways.resize(ways_max);
      atom.before *= size;
    }
  }
  return ways;
}

}  // namespace crossmesh
