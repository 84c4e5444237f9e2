#include "common/wire/worker_part_codec.h"

#include "common/base/checked_math.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/mesh/manifest.h"
#include "common/wire/course_codec.h"
#include "common/wire/part_error.h"
#include "common/wire/plan_codec.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using google::protobuf::RepeatedPtrField;

// All of some arrays must have one entry for each thing.
template <typename First, typename... Others>
absl::Status CheckSameSize(absl::string_view what, const First& first, const Others&... others) {
  for (const int size : {first.size(), others.size()...}) {
    if (size != first.size()) {
      return PartError(absl::StrCat("arrays by ", what), absl::StrCat(first.size(), " entries"),
                       size);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Digest> DigestFromProto(absl::string_view field, absl::string_view hex) {
  const std::optional<Digest> digest = Digest::Parse(hex);
  if (digest.has_value()) return *digest;
  return absl::InvalidArgumentError(absl::StrCat("worker's part, ", field,
                                                 ": expected 32 hexadecimal digits, found ",
                                                 hex.size(), " other bytes"));
}

// Tensors.

void AddPlacements(const std::vector<Placement>& placements,
                   RepeatedPtrField<v1::WorkerPart::Placement>& proto) {
  for (const Placement& placement : placements) {
    v1::WorkerPart::Placement& added = *proto.Add();
    added.set_mesh(ToString(placement.mesh));
    added.set_layout(ToString(placement.layout));
  }
}

absl::StatusOr<std::vector<Placement>> PlacementsFromProto(
    const RepeatedPtrField<v1::WorkerPart::Placement>& proto, int64_t& slots_left) {
  std::vector<Placement> placements;
  for (const v1::WorkerPart::Placement& placement : proto) {
    ASSIGN_OR_RETURN(Mesh mesh, ParseMesh(placement.mesh()));
    ASSIGN_OR_RETURN(Layout layout, ParseLayout(placement.layout()));
    // After each mesh, since a short text can stand for very many slots.
    slots_left -= mesh.slots();
    if (slots_left < 0) {
      return PartError("placements", absl::StrCat("at most ", kPartSlotsMax, " slots together"),
                       kPartSlotsMax - slots_left);
    }
    placements.push_back({.mesh = std::move(mesh), .layout = std::move(layout)});
  }
  return placements;
}

void AddGroups(const TensorTable& tensors, v1::WorkerPart& proto) {
  for (const TensorGroup& group : tensors.groups()) {
    v1::WorkerPart::Group& added = *proto.add_groups();
    for (const int64_t length : group.shape.lengths()) added.add_shape(length);
    added.set_dtype(std::string(DataTypeName(group.type)));
    added.set_source(group.source);
    added.set_destination(group.destination);
    if (group.sent_as.has_value()) added.set_sent_as(std::string(DataTypeName(*group.sent_as)));
    if (group.slab != Slab()) *added.mutable_slab() = ToProto(group.slab);
  }
  const std::vector<int32_t>& group_of = tensors.group_of_tensor();
  for (size_t begin = 0, end = 0; begin < group_of.size(); begin = end) {
    while (end < group_of.size() && group_of[end] == group_of[begin]) ++end;
    proto.add_run_group(group_of[begin] + 1);
    proto.add_run_length(static_cast<int64_t>(end - begin));
  }
}

absl::StatusOr<std::vector<TensorGroup>> GroupsFromProto(const v1::WorkerPart& proto,
                                                         const TensorTable::Spec& spec) {
  std::vector<TensorGroup> groups;
  int64_t tile_checks = 0;
  for (const v1::WorkerPart::Group& group : proto.groups()) {
    ASSIGN_OR_RETURN(Shape shape, Shape::Create({group.shape().data(),
                                                 static_cast<size_t>(group.shape_size())}));
    ASSIGN_OR_RETURN(const DataType type, ParseDataType(group.dtype()));
    for (const auto& [side, index] : {std::pair(&spec.sources, group.source()),
                                      std::pair(&spec.destinations, group.destination())}) {
      if (index < 0 || index >= static_cast<int64_t>(side->size())) {
        return PartError("placement of a group", absl::StrCat("one below ", side->size()), index);
      }
      tile_checks += (*side)[index].mesh.slots();
    }
    // TensorTable::Create looks at so many tiles: refused before it does.
    if (tile_checks > kPartTileChecksMax) {
      return PartError("groups", absl::StrCat("at most ", kPartTileChecksMax, " tiles together"),
                       tile_checks);
    }
    groups.push_back({.shape = std::move(shape),
                      .type = type,
                      .source = group.source(),
                      .destination = group.destination()});
    if (!group.sent_as().empty()) {
      ASSIGN_OR_RETURN(groups.back().sent_as, ParseDataType(group.sent_as()));
    }
    if (group.has_slab()) groups.back().slab = FromProto(group.slab());
  }
  return groups;
}

absl::StatusOr<std::vector<int32_t>> GroupOfTensorFromProto(const v1::WorkerPart& proto) {
  RETURN_IF_ERROR(CheckSameSize("run", proto.run_group(), proto.run_length()));
  std::vector<int32_t> group_of;
  for (int i = 0; i < proto.run_group_size(); ++i) {
    const int64_t most = Manifest::kTensorsMax - static_cast<int64_t>(group_of.size());
    const int64_t length = proto.run_length(i);
    if (length < 1 || length > most) {
      return PartError("length of a run", absl::StrCat("from 1 to ", most), length);
    }
    const int32_t group = proto.run_group(i);
    if (group < 0 || group > proto.groups_size()) {
      return PartError("group of a run", absl::StrCat("from 0 to ", proto.groups_size()), group);
    }
    // On the wire 0 stands for a tensor that is not moved.
    group_of.insert(group_of.end(), length, group - 1);
  }
  return group_of;
}

absl::StatusOr<std::shared_ptr<const TensorTable>> TensorsFromProto(const v1::WorkerPart& proto) {
  TensorTable::Spec spec;
  int64_t slots_left = kPartSlotsMax;
  ASSIGN_OR_RETURN(spec.sources, PlacementsFromProto(proto.sources(), slots_left));
  ASSIGN_OR_RETURN(spec.destinations, PlacementsFromProto(proto.destinations(), slots_left));
  ASSIGN_OR_RETURN(spec.groups, GroupsFromProto(proto, spec));
  ASSIGN_OR_RETURN(spec.group_of_tensor, GroupOfTensorFromProto(proto));
  spec.scaled_tensors.assign(proto.scaled_tensors().begin(), proto.scaled_tensors().end());
  ASSIGN_OR_RETURN(spec.manifest, DigestFromProto("manifest", proto.manifest_digest()));
  spec.replica_axes.assign(proto.replica_axes().begin(), proto.replica_axes().end());
  ASSIGN_OR_RETURN(TensorTable tensors, TensorTable::Create(std::move(spec)));
  return std::make_shared<const TensorTable>(std::move(tensors));
}

// Classes.

void AddClasses(const WorkerPart::Spec& spec, v1::WorkerPart& proto) {
  for (int32_t i = 0; i < spec.device_sets.size(); ++i) {
    const std::span<const DeviceRank> set = spec.device_sets[i];
    proto.add_set_size(static_cast<int32_t>(set.size()));
    DeviceRank before = 0;
    for (const DeviceRank rank : set) proto.add_set_devices(rank - std::exchange(before, rank));
  }
  for (const WorkerPart::ClassSets& sets : spec.class_sets) {
    proto.add_class_holders(sets.holders);
    proto.add_class_receivers(sets.receivers);
    if (!spec.tensors->conversions().empty()) proto.add_class_conversion(sets.conversion + 1);
  }
}

absl::Status ReadDeviceSets(const v1::WorkerPart& proto, WorkerPart::Spec& spec) {
  int next = 0;
  std::vector<DeviceRank> set;
  spec.device_sets.Reserve(proto.set_size_size(), proto.set_devices_size());
  for (const int32_t size : proto.set_size()) {
    if (size < 0 || size > proto.set_devices_size() - next) {
      return PartError(
          "size of a device set",
          absl::StrCat("at most the ", proto.set_devices_size() - next, " that are left"), size);
    }
    set.clear();
    // In 64 bits: the differences of a bad part may add up to more than 32.
    int64_t rank = 0;
    for (const int end = next + size; next < end; ++next) {
      rank += proto.set_devices(next);
      if (rank < 0 || rank >= static_cast<int64_t>(spec.tensors->devices().size())) {
        return PartError("rank in a device set",
                         absl::StrCat("from 0 to below ", spec.tensors->devices().size()), rank);
      }
      set.push_back(static_cast<DeviceRank>(rank));
    }
    spec.device_sets.Add(set);
  }
  if (next != proto.set_devices_size()) {
    return PartError("devices of the sets", absl::StrCat(next, " in all"),
                     proto.set_devices_size());
  }
  return absl::OkStatus();
}

absl::Status ReadClasses(const v1::WorkerPart& proto, WorkerPart::Spec& spec) {
  RETURN_IF_ERROR(ReadDeviceSets(proto, spec));
  RETURN_IF_ERROR(CheckSameSize("class", proto.class_holders(), proto.class_receivers()));
  const bool is_converted = proto.class_conversion_size() > 0;
  if (is_converted) {
    RETURN_IF_ERROR(CheckSameSize("class", proto.class_holders(), proto.class_conversion()));
  }
  for (int i = 0; i < proto.class_holders_size(); ++i) {
    const int64_t conversion =
        is_converted ? int64_t{proto.class_conversion(i)} - 1 : kNoConversion;
    if (conversion < kNoConversion)
      return PartError("conversion of a class", "0 or more", conversion + 1);
    spec.class_sets.push_back({.holders = proto.class_holders(i),
                               .receivers = proto.class_receivers(i),
                               .conversion = static_cast<ConversionIndex>(conversion)});
  }
  return absl::OkStatus();
}

// Relays, hops and copies.

void AddRelays(const WorkerPart::Spec& spec, v1::WorkerPart& proto) {
  int64_t before = 0;
  for (const WorkerPart::PartRelay& relay : spec.relays) {
    proto.add_relay_index(relay.relay - std::exchange(before, relay.relay));
    proto.add_relay_class(relay.class_sets);
    proto.add_relay_root(relay.root);
    proto.add_relay_begin(relay.begin);
    proto.add_relay_length(relay.end - relay.begin);
    proto.add_relay_hops(relay.hop_count);
    proto.add_relay_due_begin(relay.due.begin);
    proto.add_relay_due_end(relay.due.end);
  }
  for (const WorkerPart::PartHop& hop : spec.hops) {
    proto.add_hop_from(hop.from);
    proto.add_hop_to(hop.to);
    proto.add_hop_channel(hop.channel);
    proto.add_hop_place(hop.place);
    proto.add_hop_period(hop.period);
  }
  for (const WorkerPart::PartCopy& copy : spec.copies) {
    proto.add_copy_class(copy.class_sets);
    proto.add_copy_device(copy.device);
  }
}

absl::Status ReadRelays(const v1::WorkerPart& proto, WorkerPart::Spec& spec) {
  RETURN_IF_ERROR(CheckSameSize(
      "relay", proto.relay_index(), proto.relay_class(), proto.relay_root(), proto.relay_begin(),
      proto.relay_length(), proto.relay_hops(), proto.relay_due_begin(), proto.relay_due_end()));
  int64_t index = 0;
  int64_t next_hop = 0;
  for (int i = 0; i < proto.relay_index_size(); ++i) {
    const std::optional<int64_t> sum = CheckedAdd(index, proto.relay_index(i));
    const std::optional<int64_t> end = CheckedAdd(proto.relay_begin(i), proto.relay_length(i));
    if (!sum.has_value()) return PartError("index of a relay", "64 bits", proto.relay_index(i));
    if (!end.has_value()) return PartError("length of a relay", "64 bits", proto.relay_length(i));
    index = *sum;
    spec.relays.push_back({.relay = index,
                           .class_sets = proto.relay_class(i),
                           .root = proto.relay_root(i),
                           .begin = proto.relay_begin(i),
                           .end = *end,
                           .first_hop = next_hop,
                           .hop_count = proto.relay_hops(i),
                           .due = {proto.relay_due_begin(i), proto.relay_due_end(i)}});
    next_hop += proto.relay_hops(i);
  }
  return absl::OkStatus();
}

absl::Status ReadHopsAndCopies(const v1::WorkerPart& proto, WorkerPart::Spec& spec) {
  RETURN_IF_ERROR(CheckSameSize("hop", proto.hop_from(), proto.hop_to(), proto.hop_channel(),
                                proto.hop_place(), proto.hop_period()));
  for (int i = 0; i < proto.hop_from_size(); ++i) {
    spec.hops.push_back({.from = proto.hop_from(i),
                         .to = proto.hop_to(i),
                         .channel = proto.hop_channel(i),
                         .place = proto.hop_place(i),
                         .period = proto.hop_period(i)});
  }
  RETURN_IF_ERROR(CheckSameSize("copy", proto.copy_class(), proto.copy_device()));
  for (int i = 0; i < proto.copy_class_size(); ++i) {
    spec.copies.push_back({.class_sets = proto.copy_class(i), .device = proto.copy_device(i)});
  }
  return absl::OkStatus();
}

}  // namespace

v1::WorkerPart ToProto(const WorkerPart& part) {
  const WorkerPart::Spec& spec = part.spec();
  v1::WorkerPart proto;
  proto.set_plan_id(spec.plan.ToString());
  AddPlacements(spec.tensors->placements(Side::kSource), *proto.mutable_sources());
  AddPlacements(spec.tensors->placements(Side::kDestination), *proto.mutable_destinations());
  AddGroups(*spec.tensors, proto);
  const std::vector<int32_t>& scaled = spec.tensors->spec().scaled_tensors;
  proto.mutable_scaled_tensors()->Add(scaled.begin(), scaled.end());
  proto.set_manifest_digest(spec.tensors->manifest().ToString());
  for (const std::string& axis : spec.tensors->spec().replica_axes) proto.add_replica_axes(axis);
  proto.mutable_devices()->Add(spec.devices.begin(), spec.devices.end());
  AddClasses(spec, proto);
  AddRelays(spec, proto);
  proto.mutable_broadcast_groups()->Add(spec.broadcast_groups.begin(), spec.broadcast_groups.end());
  proto.mutable_over_gpus()->Add(spec.over_gpus.begin(), spec.over_gpus.end());
  proto.set_medium(static_cast<v1::WorkerPart::Medium>(spec.medium));
  proto.set_m2n(spec.m2n);
  proto.set_chunk_bytes(spec.chunk_bytes);
  proto.set_periods(spec.periods);
  proto.set_least_run_ns(spec.least_run_ns);
  proto.set_binding(ToProto(spec.binding));
  proto.set_shared_storage(spec.shared_storage);
  AddCourses(part, proto);
  return proto;
}

absl::StatusOr<WorkerPart> FromProto(const v1::WorkerPart& proto) {
  WorkerPart::Spec spec;
  ASSIGN_OR_RETURN(spec.plan, DigestFromProto("plan", proto.plan_id()));
  ASSIGN_OR_RETURN(spec.tensors, TensorsFromProto(proto));
  spec.devices.assign(proto.devices().begin(), proto.devices().end());
  RETURN_IF_ERROR(ReadClasses(proto, spec));
  RETURN_IF_ERROR(ReadRelays(proto, spec));
  RETURN_IF_ERROR(ReadHopsAndCopies(proto, spec));
  spec.broadcast_groups.assign(proto.broadcast_groups().begin(), proto.broadcast_groups().end());
  spec.over_gpus.assign(proto.over_gpus().begin(), proto.over_gpus().end());
  if (!v1::WorkerPart::Medium_IsValid(proto.medium())) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker's part, medium: expected one that is known, found ",
                     static_cast<int>(proto.medium())));
  }
  spec.medium = static_cast<Medium>(proto.medium());
  spec.m2n = proto.m2n();
  spec.chunk_bytes = proto.chunk_bytes();
  spec.periods = proto.periods();
  spec.least_run_ns = proto.least_run_ns();
  ASSIGN_OR_RETURN(spec.binding, FromProto(proto.binding()));
  spec.shared_storage = proto.shared_storage();
  ASSIGN_OR_RETURN(spec.courses, CoursesFromProto(proto));
  return WorkerPart::Create(std::move(spec));
}

absl::StatusOr<std::shared_ptr<const WorkerPart>> ParseWorkerPart(absl::string_view bytes,
                                                                  const Digest& expected) {
  v1::WorkerPart proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", expected.ToString(), ": ", bytes.size(), " bytes are no WorkerPart"));
  }
  ASSIGN_OR_RETURN(WorkerPart part, FromProto(proto));
  if (part.digest() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "part: expected the digest ", expected.ToString(), ", found ", part.digest().ToString()));
  }
  return std::make_shared<const WorkerPart>(std::move(part));
}

}  // namespace crossmesh
