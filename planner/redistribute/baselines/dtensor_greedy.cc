#include "planner/redistribute/baselines/dtensor_greedy.h"

#include <algorithm>
#include <utility>

namespace crossmesh {
namespace {

// Placement of an axis: the dimension that it cuts, or one of these.
constexpr int kReplicate = -1;
constexpr int kPartial = -2;

using Placements = std::vector<int>;

std::optional<Placements> PlacementsOf(const TypeSpace& space, const ContiguousType& type) {
  Placements placements(space.atom_count(), kReplicate);
  for (size_t dimension = 0; dimension < type.dimensions.size(); ++dimension) {
    if (!std::ranges::is_sorted(type.dimensions[dimension])) return std::nullopt;
    for (const int32_t atom : type.dimensions[dimension]) {
      placements[atom] = static_cast<int>(dimension);
    }
  }
  for (const int32_t atom : type.partial) placements[atom] = kPartial;
  return placements;
}

ContiguousType TypeOf(const Placements& placements, size_t dimensions) {
  ContiguousType type;
  type.dimensions.resize(dimensions);
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis] >= 0) {
      type.dimensions[placements[axis]].push_back(static_cast<int32_t>(axis));
    } else if (placements[axis] == kPartial) {
      type.partial.push_back(static_cast<int32_t>(axis));
    }
  }
  return type;
}

StepKind KindOf(int from, int to) {
  if (from == kPartial) return to == kReplicate ? StepKind::kAllReduce : StepKind::kReduceScatter;
  if (from == kReplicate) return StepKind::kSlice;
  return to == kReplicate ? StepKind::kAllGather : StepKind::kAllToAll;
}

// Whether the axes before this one that cut a dimension are those that are to.
bool SameBefore(size_t axis, int dimension, const Placements& now, const Placements& target) {
  for (size_t before = 0; before < axis; ++before) {
    if ((now[before] == dimension) != (target[before] == dimension)) return false;
  }
  return true;
}

}  // namespace

std::optional<Derivation> DtensorGreedy(std::shared_ptr<const TypeSpace> space,
                                        const CollectiveCost& cost) {
  const ContiguousType destination = ContiguousOf(space->destination());
  std::optional<Placements> now = PlacementsOf(*space, ContiguousOf(space->source()));
  const std::optional<Placements> target = PlacementsOf(*space, destination);
  if (!now.has_value() || !target.has_value()) return std::nullopt;
  ContiguousSteps steps(std::move(space), cost);
  const auto move = [&](size_t axis, int to) {
    const int from = std::exchange((*now)[axis], to);
    if (from != to) steps.Append(KindOf(from, to), TypeOf(*now, destination.dimensions.size()));
  };
  for (size_t axis = now->size(); axis-- > 0;) {
    const int to = (*target)[axis];
    if ((*now)[axis] == kReplicate) continue;
    move(axis, to < 0 || SameBefore(axis, to, *now, *target) ? to : kReplicate);
  }
  for (size_t axis = 0; axis < now->size(); ++axis) move(axis, (*target)[axis]);
  return std::move(steps).Finish();
}

}  // namespace crossmesh
