#include "client/cli/local_spec.h"

#include "client/client.h"
#include "common/base/status_macros.h"
#include "common/reshard/reshard_inputs.h"
#include "common/wire/reshard_codec.h"
#include "common/wire/tensor_codec.h"

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
  return MakeLocalRequest(inputs);
}

absl::StatusOr<LocalPlan> MakeLocalPlan(const v1::ReshardSpec& spec) {
  ASSIGN_OR_RETURN(const ReshardInputs inputs, ReadInputs(spec));
  return MakeLocalPlan(inputs);
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
