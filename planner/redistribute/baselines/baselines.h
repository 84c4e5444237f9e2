#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/derivation.h"
#include "planner/redistribute/redistribution_request.h"
#include "planner/redistribute/step.h"

#include <span>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What other systems do with a request, to compare with. All types on the way are contiguous, and
// no method knows a limit of memory.
enum class RedistributionBaseline : uint8_t {
  kReplicateThenSlice,  // XLA's last resort: everything everywhere, then each its part
  kDtensorGreedy,       // PyTorch DTensor's default planner
  kOneAxis,             // the least bytes of steps over one axis each, without permutes
  kNormalForm,          // arXiv 2112.01075: slices, exchanges, gathers, by rewriting
};
inline constexpr RedistributionBaseline kRedistributionBaselines[] = {
    RedistributionBaseline::kReplicateThenSlice, RedistributionBaseline::kDtensorGreedy,
    RedistributionBaseline::kOneAxis, RedistributionBaseline::kNormalForm};
// "replicate_then_slice", "dtensor_greedy", "one_axis", "normal_form".
absl::string_view RedistributionBaselineName(RedistributionBaseline baseline);

// InvalidArgument as Validate. Unimplemented when the method has no answer: a dimension that does
// not divide; for kDtensorGreedy and kOneAxis a part of an axis, for the first also axes that do
// not cut a dimension in the mesh's order, or a partial axis at the destination; for kNormalForm
// partial sums. Cost: kOneAxis the layouts of the axes, others the steps squared.
absl::StatusOr<Derivation> PlanBaseline(RedistributionBaseline baseline,
                                        const RedistributionRequest& request,
                                        const CollectiveCost& cost = {}, StepStaging staging = {});

}  // namespace crossmesh
