#include "client/planning/local_plan.h"

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/plan/tensor_table.h"
#include "common/wire/plan_codec.h"
#include "planner/redistribute/planning/plan_request.h"
#include "planner/reshard/reshard_request.h"

#include <memory>
#include <utility>

namespace crossmesh {

v1::PlanSummary LocalPlan::Summary() const {
  return SummaryOf(plan, proof, {.topology = topology, .duration = duration});
}

absl::StatusOr<LocalRequest> MakeLocalRequest(const ReshardInputs& inputs) {
  LocalRequest request{.limits = inputs.limits};
  ASSIGN_OR_RETURN(request.reshard, RequestWithoutTensors(inputs, Topology()));
  ASSIGN_OR_RETURN(TensorTable tensors, BuildReshardTensors(inputs));
  request.reshard.tensors = std::make_shared<const TensorTable>(std::move(tensors));
  return request;
}

absl::StatusOr<LocalPlan> MakeLocalPlan(const ReshardInputs& inputs, CancelCheck cancelled) {
  ASSIGN_OR_RETURN(LocalRequest request, MakeLocalRequest(inputs));
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  ASSIGN_OR_RETURN(Plan plan, PlanRequest(request.reshard, cancelled));
  ASSIGN_OR_RETURN(Proof proof, Prove(plan, request.limits));
  return LocalPlan{.plan = std::move(plan),
                   .proof = std::move(proof),
                   .topology = std::move(request.reshard.topology),
                   .duration = clock.Monotonic() - begin};
}

}  // namespace crossmesh
