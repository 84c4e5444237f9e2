#pragma once

#include "planner/redistribute/baselines/baselines.h"
#include "planner/redistribute/derivation.h"
#include "planner/redistribute/redistribution_request.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/reshard/plan_reshard.h"

#include <cstdint>
#include <optional>

#include <absl/status/statusor.h>

namespace crossmesh {

// What is looked for: how tensors of one shape go from one layout to another, on the axes that both
// meshes have in common.
struct PairSearch {
  RedistributionRequest request;
  // Without limits of memory. Steps may be priced as collectives of NCCL where the request's may be
  // such.
  RedistributionOptions options;
  // A method of the literature finds the steps instead.
  std::optional<RedistributionBaseline> method;

  // The derivation, proven. As SearchRedistribution and PlanBaseline.
  absl::StatusOr<Derivation> Find() const;
};

// The searches of a request, one for each group of its tensors. Refers to the request.
class PairSearches {
 public:
  // InvalidArgument: a name is no reduction's, objective's or method's.
  static absl::StatusOr<PairSearches> Create(const ReshardRequest& request);

  // InvalidArgument, without the tensor's name: the group is converted; its meshes have other
  // devices or another order of them, or axes that do not divide each other; its layouts are not of
  // axes; its summands cannot be reduced.
  absl::StatusOr<PairSearch> Of(int32_t group) const;

 private:
  explicit PairSearches(const ReshardRequest& request) : request_(request) {}

  const ReshardRequest& request_;
  PartialReduction reduction_ = PartialReduction::kSum;
  RedistributionObjective objective_ = RedistributionObjective::kSeconds;
  std::optional<RedistributionBaseline> method_;
  bool may_use_collectives_ = false;
};

}  // namespace crossmesh
