#include "client/cli/local_plan.h"

#include "client/client.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/plan/tensor_table.h"
#include "common/reshard/reshard_inputs.h"
#include "common/wire/plan_codec.h"
#include "common/wire/reshard_codec.h"
#include "common/wire/tensor_codec.h"
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

absl::StatusOr<v1::ReshardSpec> WithNamedObjects(Client& client, v1::ReshardSpec spec) {
  if (spec.has_manifest()) {
    ASSIGN_OR_RETURN(const Manifest manifest, client.GetManifest(spec.manifest()));
    *spec.mutable_inline_manifest() = ToProto(manifest);
  }
  for (v1::ReshardSide* side : {spec.mutable_source(), spec.mutable_destination()}) {
    if (!side->has_mesh()) continue;
    ASSIGN_OR_RETURN(v1::GetMeshResponse named, client.GetMesh(side->mesh()));
    named.mutable_mesh()->clear_name();
    *side->mutable_inline_mesh() = std::move(*named.mutable_mesh());
  }
  if (!spec.has_topology()) {
    ASSIGN_OR_RETURN(v1::Network network, client.GetNetwork());
    *spec.mutable_topology() = std::move(*network.mutable_topology());
  }
  return spec;
}

absl::StatusOr<LocalRequest> MakeLocalRequest(const v1::ReshardSpec& spec) {
  ASSIGN_OR_RETURN(const ReshardInputs inputs, ReadInputs(spec));
  LocalRequest request{.limits = inputs.limits};
  ASSIGN_OR_RETURN(request.reshard, RequestWithoutTensors(inputs, Topology()));
  ASSIGN_OR_RETURN(TensorTable tensors, BuildReshardTensors(inputs));
  request.reshard.tensors = std::make_shared<const TensorTable>(std::move(tensors));
  return request;
}

absl::StatusOr<LocalPlan> MakeLocalPlan(const v1::ReshardSpec& spec) {
  ASSIGN_OR_RETURN(LocalRequest request, MakeLocalRequest(spec));
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  ASSIGN_OR_RETURN(Plan plan, PlanRequest(request.reshard));
  ASSIGN_OR_RETURN(Proof proof, Prove(plan, request.limits));
  return LocalPlan{.plan = std::move(plan),
                   .proof = std::move(proof),
                   .topology = std::move(request.reshard.topology),
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
