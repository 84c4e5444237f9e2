#include "client/cli/local_plan.h"

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/plan/plan.h"
#include "common/plan/proof.h"
#include "common/plan/tensor_table.h"
#include "common/reshard/reshard_inputs.h"
#include "common/wire/plan_codec.h"
#include "common/wire/reshard_codec.h"
#include "controller/reshard/plan_reshard.h"
#include "controller/reshard/reshard_request.h"

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

absl::StatusOr<v1::PlanReshardResponse> PlanLocally(const v1::PlanReshardRequest& request) {
  RETURN_IF_ERROR(RefuseNames(request.spec()));
  ASSIGN_OR_RETURN(const ReshardInputs inputs, FromProto(request.spec(), NamedObjects()));
  ASSIGN_OR_RETURN(ReshardRequest decoded, RequestWithoutTensors(inputs, Topology()));
  ASSIGN_OR_RETURN(TensorTable tensors, BuildReshardTensors(inputs));
  decoded.tensors = std::make_shared<const TensorTable>(std::move(tensors));
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  ASSIGN_OR_RETURN(const Plan plan, PlanReshard(decoded));
  ASSIGN_OR_RETURN(const Proof proof, Prove(plan, inputs.limits));
  v1::PlanReshardResponse response;
  *response.mutable_summary() =
      SummaryOf(plan, proof, {.topology = decoded.topology, .duration = clock.Monotonic() - begin});
  if (request.explain()) {
    const int64_t relays = request.explain_relays();
    response.set_text(ToText(plan, relays > 0 ? relays : kExplainRelaysDefault));
  }
  return response;
}

}  // namespace crossmesh
