#include "common/wire/reshard_codec.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/wire/plan_codec.h"
#include "common/wire/tensor_codec.h"

#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

template <typename T, typename Proto>
absl::StatusOr<std::shared_ptr<const T>> Decode(absl::string_view field, const Proto& proto) {
  ASSIGN_OR_RETURN(T decoded, At(field, FromProto(proto)));
  return std::make_shared<const T>(std::move(decoded));
}

absl::StatusOr<std::shared_ptr<const Manifest>> ManifestOf(
    const v1::ReshardSpec& proto, const std::shared_ptr<const Manifest>& named) {
  if (named != nullptr) return named;
  if (!proto.has_inline_manifest()) {
    return absl::InvalidArgumentError("spec.manifest: expected a name or an inline manifest");
  }
  return Decode<Manifest>("spec.inline_manifest", proto.inline_manifest());
}

absl::StatusOr<ReshardInputs::Side> SideOf(absl::string_view field, const v1::ReshardSide& proto,
                                           std::shared_ptr<const Mesh> named) {
  ReshardInputs::Side side = {.mesh = std::move(named)};
  if (side.mesh == nullptr) {
    if (!proto.has_inline_mesh()) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".mesh: expected a name or an inline mesh"));
    }
    ASSIGN_OR_RETURN(side.mesh,
                     Decode<Mesh>(absl::StrCat(field, ".inline_mesh"), proto.inline_mesh()));
  }
  if (proto.rules_size() == 0 || proto.rules_size() > kReshardRulesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ".rules: expected 1 to ", kReshardRulesMax, " rules, found ", proto.rules_size()));
  }
  ASSIGN_OR_RETURN(side.rules, At(absl::StrCat(field, ".rules"), FromProto(proto.rules())));
  return side;
}

// Names are the planner's to know.
absl::StatusOr<RedistributionInputs> RedistributionOf(const v1::ReshardSpec& proto) {
  const v1::Redistribution& of = proto.redistribution();
  if (proto.has_redistribution() && StrategyOf(proto) != "redistribute") {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.redistribution: expected strategy \"redistribute\", found \"",
                     proto.strategy(), "\""));
  }
  return RedistributionInputs{
      .source_partial = {of.source_partial().begin(), of.source_partial().end()},
      .destination_partial = {of.destination_partial().begin(), of.destination_partial().end()},
      .reduction = of.reduction(),
      .reduction_order = of.reduction_order(),
      .objective = of.objective(),
      .method = of.method(),
      .no_relays = of.no_relays(),
      .release_source = of.release_source()};
}

}  // namespace

absl::StatusOr<ReshardInputs> FromProto(const v1::ReshardSpec& proto, const NamedObjects& named) {
  ReshardInputs inputs;
  ASSIGN_OR_RETURN(inputs.manifest, ManifestOf(proto, named.manifest));
  ASSIGN_OR_RETURN(inputs.source, SideOf("spec.source", proto.source(), named.source_mesh));
  ASSIGN_OR_RETURN(inputs.destination,
                   SideOf("spec.destination", proto.destination(), named.destination_mesh));
  inputs.replica_axes.assign(proto.replica_axes().begin(), proto.replica_axes().end());
  if (proto.has_topology()) {
    ASSIGN_OR_RETURN(inputs.topology, At("spec.topology", FromProto(proto.topology())));
  }
  inputs.strategy = StrategyOf(proto);
  ASSIGN_OR_RETURN(inputs.redistribution, RedistributionOf(proto));
  inputs.seed = proto.seed();
  inputs.chunk_bytes = proto.chunk_bytes();
  if (proto.nic_share() != 0) inputs.nic_share = proto.nic_share();
  inputs.no_broadcasts = proto.no_broadcasts();
  if (proto.binding() != v1::BINDING_MODE_UNSPECIFIED) {
    ASSIGN_OR_RETURN(inputs.binding, FromProto(proto.binding()));
  }
  inputs.shared_storage = SharesStorage(proto);
  if (proto.device_bytes_max() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.device_bytes_max: expected at least 0, found ", proto.device_bytes_max()));
  }
  inputs.limits.device_bytes_max = proto.device_bytes_max();
  return inputs;
}

std::string StrategyOf(const v1::ReshardSpec& proto) {
  return proto.strategy().empty() && proto.has_redistribution() ? "redistribute" : proto.strategy();
}

bool SharesStorage(const v1::ReshardSpec& proto) {
  return !proto.source().storage().empty() &&
         proto.source().storage() == proto.destination().storage();
}

}  // namespace crossmesh
