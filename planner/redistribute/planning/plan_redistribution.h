#pragma once

#include "common/base/cancel_check.h"
#include "common/plan/plan.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/reshard/plan_reshard.h"

#include <optional>

#include <absl/status/statusor.h>

namespace crossmesh {

// The plan of a change of layout inside one mesh, by steps: for each pair of layouts the derivation
// that a search finds, or the method of the literature that the request names, proven, and lowered
// to a plan for each step (lowering.h). Tensors that take as many steps take them together, in one
// round of messages for each step, instance by instance: these are so many that the arrays between
// steps stay small, and steps of several instances overlap. Where nothing is reduced and no steps
// are predicted to be faster than one move of all, the plan is that of strategy relay; and where
// the request limits memory so that nothing can lie between steps. Where the source is to be
// released there are courses in any case, since it is released instance by instance. Without
// `sizes` these are what suits the devices. Of GPUs and host memory together, those GPUs that
// exchange nothing with other devices in any step go over a communicator (separate_gpus.h), and all
// else by way of host memory. Pure: equal requests give equal plans.
//
// InvalidArgument, naming the tensor: its layouts are not of axes, its meshes have other devices or
// another order of them, or axes that do not divide each other; it is converted; what
// SearchRedistribution finds, and what CheckReduction does; a name that is no reduction's,
// objective's or method's; a source is to be released under shadow, into its own storage, or for
// several replicas. ResourceExhausted: sums cannot be made, or the source not be released, within
// the request's limit of memory, with the least that would do. Unimplemented: a source on GPUs is
// to be released; what the method cannot say. Otherwise as PlanReshard. Cost: that of the search
// for each pair of layouts and shape, and of PlanReshard for each step.
absl::StatusOr<Plan> PlanRedistribution(const ReshardRequest& request,
                                        CancelCheck cancelled = NeverCancelled,
                                        const std::optional<CourseSizes>& sizes = std::nullopt);

}  // namespace crossmesh
