#include "planner/redistribute/baselines/contiguous_steps.h"

#include "common/base/check.h"

#include <string>
#include <utility>

namespace crossmesh {

ContiguousType ContiguousOf(const LocalType& type) {
  ContiguousType named{.partial = type.partial};
  for (const std::vector<DimensionCut>& cuts : type.dimensions) {
    std::vector<int32_t>& atoms = named.dimensions.emplace_back();
    for (const DimensionCut& cut : cuts) atoms.push_back(cut.atom);
  }
  return named;
}

LocalType LocalTypeOf(const TypeSpace& space, const ContiguousType& type) {
  LocalType local{.partial = type.partial};
  for (size_t dimension = 0; dimension < type.dimensions.size(); ++dimension) {
    std::vector<DimensionCut>& cuts = local.dimensions.emplace_back();
    for (const int32_t atom : type.dimensions[dimension]) cuts.push_back({.atom = atom});
    int64_t stride = space.shape()[static_cast<int>(dimension)];
    if (stride % space.Parts(cuts) != 0) continue;
    for (DimensionCut& cut : cuts) cut.stride = stride /= space.atoms()[cut.atom].size;
  }
  return local;
}

ContiguousSteps::ContiguousSteps(std::shared_ptr<const TypeSpace> space, const CollectiveCost& cost)
    : space_(std::move(space)), prices_(*space_, cost), type_(ContiguousOf(space_->source())) {}

bool ContiguousSteps::TryAppend(StepKind kind, ContiguousType after) {
  if (after == type_) return true;
  absl::StatusOr<RedistributionStep> step =
      MakeStep(*space_, kind, {LocalTypeOf(*space_, type_), LocalTypeOf(*space_, after)});
  if (!step.ok()) return false;
  prices_.Price(*step);
  steps_.push_back(*std::move(step));
  type_ = std::move(after);
  return true;
}

void ContiguousSteps::Append(StepKind kind, ContiguousType after) {
  const std::string text = space_->Text(LocalTypeOf(*space_, after));
  CHECK(TryAppend(kind, std::move(after))) << StepKindName(kind) << " to " << text;
}

Derivation ContiguousSteps::Finish() && {
  return Derivation(std::move(space_), std::move(steps_), DerivationOrigin::kBaseline);
}

}  // namespace crossmesh
