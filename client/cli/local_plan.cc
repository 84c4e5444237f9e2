#include "client/cli/local_plan.h"

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/plan/tensor_table.h"
#include "common/reshard/reshard_inputs.h"
#include "common/wire/plan_codec.h"
#include "common/wire/reshard_codec.h"
#include "planner/redistribute/planning/plan_request.h"
#include "planner/reshard/reshard_request.h"

#include <memory>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kExplainRelaysDefault = 1000;

absl::Status OnlyControllersKnow(absl::string_view what, absl::string_view name) {
  return absl::FailedPreconditionError(absl::StrCat(
      what, " \"", name,
      "\": registered names are known to a controller only; expected --controller, or the ", what,
      " itself"));
}

absl::Status RefuseNames(const v1::ReshardSpec& spec) {
  if (spec.has_manifest()) return OnlyControllersKnow("manifest", spec.manifest());
  if (spec.source().has_mesh()) return OnlyControllersKnow("source mesh", spec.source().mesh());
  if (spec.destination().has_mesh()) {
    return OnlyControllersKnow("destination mesh", spec.destination().mesh());
  }
  return absl::OkStatus();
}

}  // namespace

v1::PlanSummary LocalPlan::Summary() const {
  return SummaryOf(plan, proof, {.topology = topology, .duration = duration});
}

absl::StatusOr<ReshardInputs> ReadInputs(const v1::ReshardSpec& spec) {
  RETURN_IF_ERROR(RefuseNames(spec));
  return FromProto(spec, NamedObjects());
}

absl::StatusOr<LocalPlan> MakeLocalPlan(const v1::ReshardSpec& spec) {
  ASSIGN_OR_RETURN(const ReshardInputs inputs, ReadInputs(spec));
  ASSIGN_OR_RETURN(ReshardRequest request, RequestWithoutTensors(inputs, Topology()));
  ASSIGN_OR_RETURN(TensorTable tensors, BuildReshardTensors(inputs));
  request.tensors = std::make_shared<const TensorTable>(std::move(tensors));
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  ASSIGN_OR_RETURN(Plan plan, PlanRequest(request));
  ASSIGN_OR_RETURN(Proof proof, Prove(plan, inputs.limits));
  return LocalPlan{.plan = std::move(plan),
                   .proof = std::move(proof),
                   .topology = std::move(request.topology),
                   .duration = clock.Monotonic() - begin};
}

v1::PlanReshardResponse ResponseOf(const LocalPlan& made, const v1::PlanReshardRequest& request) {
  v1::PlanReshardResponse response;
  *response.mutable_summary() = made.Summary();
  if (request.explain()) {
    const int64_t relays = request.explain_relays();
    response.set_text(ToText(made.plan, relays > 0 ? relays : kExplainRelaysDefault));
  }
  return response;
}

}  // namespace crossmesh
