#include "client/cli/local_plan.h"

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/plan/plan.h"
#include "common/plan/proof.h"
#include "common/plan/tensor_table.h"
#include "common/reshard/reshard_tensors.h"
#include "common/wire/plan_codec.h"
#include "common/wire/tensor_codec.h"
#include "controller/reshard/plan_reshard.h"
#include "controller/reshard/strategy.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

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

struct LocalSide {
  Mesh mesh;
  LayoutRules rules;
};

absl::StatusOr<LocalSide> DecodeSide(absl::string_view name, const v1::ReshardSide& proto) {
  if (!proto.has_inline_mesh()) {
    return OnlyControllersKnow(absl::StrCat(name, " mesh"), proto.mesh());
  }
  if (proto.rules().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": expected layout rules, found none"));
  }
  ASSIGN_OR_RETURN(Mesh mesh, FromProto(proto.inline_mesh()));
  ASSIGN_OR_RETURN(LayoutRules rules, FromProto(proto.rules()));
  return LocalSide{.mesh = std::move(mesh), .rules = std::move(rules)};
}

absl::StatusOr<TensorTable> DecodeTensors(const v1::ReshardSpec& spec) {
  if (!spec.has_inline_manifest()) return OnlyControllersKnow("manifest", spec.manifest());
  ASSIGN_OR_RETURN(const Manifest manifest, FromProto(spec.inline_manifest()));
  ASSIGN_OR_RETURN(const LocalSide source, DecodeSide("source", spec.source()));
  ASSIGN_OR_RETURN(const LocalSide destination, DecodeSide("destination", spec.destination()));
  return BuildReshardTensors(manifest, {source.mesh, source.rules},
                             {destination.mesh, destination.rules},
                             {spec.replica_axes().begin(), spec.replica_axes().end()});
}

absl::StatusOr<ReshardRequest> Decode(const v1::ReshardSpec& spec) {
  ReshardRequest request;
  ASSIGN_OR_RETURN(TensorTable tensors, DecodeTensors(spec));
  request.tensors = std::make_shared<const TensorTable>(std::move(tensors));
  if (spec.has_topology()) {
    ASSIGN_OR_RETURN(request.topology, FromProto(spec.topology()));
  }
  if (!spec.strategy().empty()) {
    ASSIGN_OR_RETURN(request.strategy, ParseStrategy(spec.strategy()));
  }
  request.seed = spec.seed();
  if (spec.chunk_bytes() != 0) request.chunk_bytes = spec.chunk_bytes();
  ASSIGN_OR_RETURN(request.binding, FromProto(spec.binding()));
  request.shared_storage =
      !spec.source().storage().empty() && spec.source().storage() == spec.destination().storage();
  return request;
}

}  // namespace

absl::StatusOr<v1::PlanReshardResponse> PlanLocally(const v1::PlanReshardRequest& request) {
  ASSIGN_OR_RETURN(const ReshardRequest decoded, Decode(request.spec()));
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  ASSIGN_OR_RETURN(const Plan plan, PlanReshard(decoded));
  ASSIGN_OR_RETURN(const Proof proof,
                   Prove(plan, {.device_bytes_max = request.spec().device_bytes_max()}));
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
