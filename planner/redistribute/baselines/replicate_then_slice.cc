#include "planner/redistribute/baselines/replicate_then_slice.h"

#include <utility>

namespace crossmesh {

Derivation ReplicateThenSlice(std::shared_ptr<const TypeSpace> space, const CollectiveCost& cost) {
  const ContiguousType destination = ContiguousOf(space->destination());
  ContiguousSteps steps(std::move(space), cost);
  if (steps.type() == destination) return std::move(steps).Finish();
  ContiguousType reduced = steps.type();
  reduced.partial = destination.partial;
  steps.Append(StepKind::kAllReduce, reduced);
  ContiguousType whole = reduced;
  for (std::vector<int32_t>& atoms : whole.dimensions) atoms.clear();
  steps.Append(StepKind::kAllGather, whole);
  steps.Append(StepKind::kSlice, destination);
  return std::move(steps).Finish();
}

}  // namespace crossmesh
