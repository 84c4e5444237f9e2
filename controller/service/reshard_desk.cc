#include "controller/service/reshard_desk.h"

#include "common/base/digest_builder.h"
#include "common/base/status_macros.h"
#include "common/mesh/layout_rules.h"
#include "common/reshard/reshard_tensors.h"
#include "common/wire/plan_codec.h"
#include "common/wire/tensor_codec.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Counts changes of the planner after which an equal request gives another plan.
constexpr int64_t kPlannerVersion = 1;

absl::Status InField(absl::string_view field, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(field, ": ", status.message()));
}

bool SharesStorage(const v1::ReshardSpec& spec) {
  return !spec.source().storage().empty() &&
         spec.source().storage() == spec.destination().storage();
}

// Finds a registered object; leaves one that is given inline to be decoded later.
template <typename T>
absl::Status Look(RecordTable<T>& table, absl::string_view field, absl::string_view name,
                  Registered<T>& found) {
  absl::StatusOr<Registered<T>> object = table.Get(name);
  if (!object.ok()) return InField(field, object.status());
  found = *std::move(object);
  return absl::OkStatus();
}

template <typename T, typename Proto>
absl::StatusOr<std::shared_ptr<const T>> ObjectOf(const Registered<T>& registered,
                                                  const Proto& inlined, absl::string_view field) {
  if (registered.value != nullptr) return registered.value;
  absl::StatusOr<T> decoded = FromProto(inlined);
  if (!decoded.ok()) return InField(field, decoded.status());
  return std::make_shared<const T>(*std::move(decoded));
}

absl::StatusOr<LayoutRules> RulesOf(const v1::ReshardSide& side, absl::string_view field) {
  if (side.rules_size() == 0 || side.rules_size() > ReshardDesk::kRulesMax) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": expected 1 to ",
                                                   static_cast<int>(ReshardDesk::kRulesMax),
                                                   " rules, found ", side.rules_size()));
  }
  absl::StatusOr<LayoutRules> rules = FromProto(side.rules());
  if (!rules.ok()) return InField(field, rules.status());
  return rules;
}

}  // namespace

// The registered objects of a specification; empty where it has its own.
struct ReshardDesk::Objects {
  Registered<Manifest> manifest;
  Registered<Mesh> source;
  Registered<Mesh> destination;
};

struct ReshardDesk::Ticket::Draft {
  std::shared_ptr<const Manifest> manifest;
  std::shared_ptr<const Mesh> source_mesh;
  std::shared_ptr<const Mesh> destination_mesh;
  LayoutRules source_rules;
  LayoutRules destination_rules;
  std::vector<std::string> replica_axes;
  ReshardRequest request;  // without its tensors
  ProofLimits limits;
};

ReshardDesk::ReshardDesk(Options options, Catalog& catalog, const Clock& clock,
                         ControllerMetrics& metrics)
    : options_(std::move(options)),
      catalog_(catalog),
      clock_(clock),
      metrics_(metrics),
      cache_(options_.cache_weight_max) {}

absl::StatusOr<ReshardDesk::Ticket> ReshardDesk::Open(const v1::ReshardSpec& spec) {
  ASSIGN_OR_RETURN(const Objects objects, Find(spec));
  Ticket ticket{.key = KeyOf(spec, objects)};
  ticket.planned = cache_.Find(ticket.key);
  metrics_.PlanCacheRequest(ticket.planned != nullptr ? CacheResult::kHit : CacheResult::kMiss);
  if (ticket.planned == nullptr) {
    ASSIGN_OR_RETURN(ticket.draft, Decode(spec, objects));
  }
  return ticket;
}

absl::StatusOr<ReshardDesk::Objects> ReshardDesk::Find(const v1::ReshardSpec& spec) {
  Objects objects;
  switch (spec.manifest_source_case()) {
    case v1::ReshardSpec::kManifest:
      RETURN_IF_ERROR(Look(catalog_.manifests, "spec.manifest", spec.manifest(), objects.manifest));
      break;
    case v1::ReshardSpec::kInlineManifest:
      break;
    case v1::ReshardSpec::MANIFEST_SOURCE_NOT_SET:
      return absl::InvalidArgumentError("spec.manifest: expected a name or an inline manifest");
  }
  const auto find_mesh = [this](const v1::ReshardSide& side, absl::string_view field,
                                Registered<Mesh>& mesh) {
    switch (side.mesh_source_case()) {
      case v1::ReshardSide::kMesh:
        return Look(catalog_.meshes, field, side.mesh(), mesh);
      case v1::ReshardSide::kInlineMesh:
        return absl::OkStatus();
      case v1::ReshardSide::MESH_SOURCE_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError(absl::StrCat(field, ": expected a name or an inline mesh"));
  };
  RETURN_IF_ERROR(find_mesh(spec.source(), "spec.source.mesh", objects.source));
  RETURN_IF_ERROR(find_mesh(spec.destination(), "spec.destination.mesh", objects.destination));
  return objects;
}

Digest ReshardDesk::KeyOf(const v1::ReshardSpec& spec, const Objects& objects) const {
  v1::ReshardSpec planned = spec;
  planned.mutable_source()->clear_storage();
  planned.mutable_destination()->clear_storage();
  planned.clear_checksums();
  planned.clear_create_destination();
  planned.clear_deadline();
  planned.clear_stall_limit();
  DigestBuilder builder;
  builder.AddInt(kPlannerVersion);
  builder.AddText(planned.SerializeAsString());
  builder.AddInt(SharesStorage(spec) ? 1 : 0);
  // A revision names one content of an object, since a name that is taken keeps its content.
  builder.AddInt(objects.manifest.revision);
  builder.AddInt(objects.source.revision);
  builder.AddInt(objects.destination.revision);
  return builder.Finish();
}

absl::StatusOr<std::shared_ptr<const ReshardDesk::Ticket::Draft>> ReshardDesk::Decode(
    const v1::ReshardSpec& spec, const Objects& objects) const {
  auto draft = std::make_shared<Ticket::Draft>();
  ASSIGN_OR_RETURN(draft->manifest,
                   ObjectOf(objects.manifest, spec.inline_manifest(), "spec.inline_manifest"));
  ASSIGN_OR_RETURN(draft->source_mesh, ObjectOf(objects.source, spec.source().inline_mesh(),
                                                "spec.source.inline_mesh"));
  ASSIGN_OR_RETURN(draft->destination_mesh,
                   ObjectOf(objects.destination, spec.destination().inline_mesh(),
                            "spec.destination.inline_mesh"));
  ASSIGN_OR_RETURN(draft->source_rules, RulesOf(spec.source(), "spec.source.rules"));
  ASSIGN_OR_RETURN(draft->destination_rules, RulesOf(spec.destination(), "spec.destination.rules"));
  draft->replica_axes.assign(spec.replica_axes().begin(), spec.replica_axes().end());

  ReshardRequest& request = draft->request;
  request.topology = options_.topology;
  if (spec.has_topology()) {
    absl::StatusOr<Topology> topology = FromProto(spec.topology());
    if (!topology.ok()) return InField("spec.topology", topology.status());
    request.topology = *std::move(topology);
  }
  if (!spec.strategy().empty()) {
    absl::StatusOr<Strategy> strategy = ParseStrategy(spec.strategy());
    if (!strategy.ok()) return InField("spec.strategy", strategy.status());
    request.strategy = *strategy;
  }
  request.seed = spec.seed();
  if (spec.chunk_bytes() != 0) request.chunk_bytes = spec.chunk_bytes();
  ASSIGN_OR_RETURN(request.binding, FromProto(spec.binding()));
  request.shared_storage = SharesStorage(spec);
  if (spec.device_bytes_max() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.device_bytes_max: expected at least 0, found ", spec.device_bytes_max()));
  }
  draft->limits.device_bytes_max = spec.device_bytes_max();
  return draft;
}

absl::StatusOr<std::shared_ptr<const PlannedReshard>> ReshardDesk::Plan(const Ticket& ticket,
                                                                        CancelCheck cancelled) {
  if (ticket.planned != nullptr) return ticket.planned;
  // Somebody else may have asked for the same at the same time.
  if (auto planned = cache_.Find(ticket.key)) return planned;
  const Ticket::Draft& draft = *ticket.draft;
  const absl::Duration begin = clock_.Monotonic();
  ASSIGN_OR_RETURN(
      TensorTable tensors,
      BuildReshardTensors(*draft.manifest, {*draft.source_mesh, draft.source_rules},
                          {*draft.destination_mesh, draft.destination_rules}, draft.replica_axes));
  ReshardRequest request = draft.request;
  request.tensors = std::make_shared<const TensorTable>(std::move(tensors));
  ASSIGN_OR_RETURN(std::shared_ptr<const PlannedReshard> planned,
                   PlannedReshard::Create(std::move(request), draft.limits, clock_, cancelled));
  metrics_.PlanComputed(planned->plan().figures().strategy, clock_.Monotonic() - begin,
                        static_cast<int64_t>(planned->plan().relays().size()));
  cache_.Insert(ticket.key, planned, planned->weight());
  return planned;
}

}  // namespace crossmesh
