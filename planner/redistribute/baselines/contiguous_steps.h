#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/derivation.h"
#include "planner/redistribute/local_type.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace crossmesh {

// A contiguous type by names: for each dimension its atoms, major first.
struct ContiguousType {
  std::vector<std::vector<int32_t>> dimensions;
  std::vector<int32_t> partial;  // ascending
  friend auto operator<=>(const ContiguousType&, const ContiguousType&) = default;
};
ContiguousType ContiguousOf(const LocalType& type);
// A dimension that does not divide has stride 0.
LocalType LocalTypeOf(const TypeSpace& space, const ContiguousType& type);

// A derivation that grows by steps from the source on.
class ContiguousSteps {
 public:
  ContiguousSteps(std::shared_ptr<const TypeSpace> space, const CollectiveCost& cost);

  // Where it is.
  const ContiguousType& type() const { return type_; }
  // Appends a step; none when the type is the same. False, and nothing is done, unless the kind can
  // do that.
  bool TryAppend(StepKind kind, ContiguousType after);
  // The same, of a step that the kind can do.
  void Append(StepKind kind, ContiguousType after);
  Derivation Finish() &&;

 private:
  std::shared_ptr<const TypeSpace> space_;
  StepPrices prices_;
  ContiguousType type_;
  std::vector<RedistributionStep> steps_;
};

}  // namespace crossmesh
