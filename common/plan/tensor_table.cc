#include "common/plan/tensor_table.h"

#include "common/base/check.h"
#include "common/base/checked_math.h"
#include "common/base/digest_builder.h"
#include "common/base/status_macros.h"
#include "common/mesh/manifest.h"
#include "common/plan/scale_tensors.h"

#include <algorithm>
#include <iterator>
#include <span>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status CheckIndex(int64_t index, size_t size, absl::string_view what) {
  if (index >= 0 && index < static_cast<int64_t>(size)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": expected an index from 0 to below ", size, ", found ", index));
}

// The part of dimension `dimension` that the axes give to a slot: its flattened coordinate, major
// axis first, among the parts of PartsOfDimension.
Interval PartOfSlot(const AxisLayout& layout, const Mesh& mesh, int64_t slot,
                    std::pair<int, int64_t> dimension_and_length) {
  const auto [dimension, length] = dimension_and_length;
  absl::InlinedVector<int64_t, 4> sizes;
  int64_t part = 0;
  for (const std::string& name : layout.dimensions[dimension]) {
    const int axis = *mesh.FindAxis(name);
    sizes.push_back(mesh.axes()[axis].size);
    part = part * sizes.back() + mesh.Coordinate(slot, axis);
  }
  return PartsOfDimension(layout.rule, length, sizes)[part];
}

// One slot's tile alone: Layout::Tiles would make those of all slots.
Tile TileOfSlot(const Placement& placement, const Shape& shape, int64_t slot) {
  if (const ExplicitLayout* tiles = placement.layout.tiles()) {
    Tile tile;
    for (const Box& box : tiles->slots[slot]) {
      if (!box.empty()) tile.push_back(box);
    }
    return tile;
  }
  const AxisLayout& axes = *placement.layout.axes();
  absl::InlinedVector<Interval, 4> intervals;
  for (int d = 0; d < shape.rank(); ++d) {
    intervals.push_back(PartOfSlot(axes, placement.mesh, slot, {d, shape[d]}));
    if (intervals.back().empty()) return {};
  }
  return {Box(std::move(intervals))};
}

void AddPlacements(std::span<const Placement> placements, DigestBuilder& builder) {
  builder.AddInt(static_cast<int64_t>(placements.size()));
  for (const Placement& placement : placements) {
    builder.AddText(ToString(placement.mesh));
    builder.AddText(ToString(placement.layout));
  }
}

}  // namespace

absl::StatusOr<TensorTable> TensorTable::Create(Spec spec) {
  TensorTable table(std::move(spec));
  RETURN_IF_ERROR(table.ListConversions());
  RETURN_IF_ERROR(table.CheckGroups());
  RETURN_IF_ERROR(table.CheckScales());
  table.RankDevices();
  RETURN_IF_ERROR(table.CountReplicas());
  table.digest_ = table.ComputeDigest();
  return table;
}

absl::Status TensorTable::ListConversions() {
  for (size_t g = 0; g < spec_.groups.size(); ++g) {
    const TensorGroup& group = spec_.groups[g];
    const Conversion conversion{.from = group.type, .to = group.sent_as.value_or(group.type)};
    if (conversion.from == conversion.to) {
      conversion_of_group_.push_back(kNoConversion);
      continue;
    }
    const absl::Status status = CheckConversion(conversion.from, conversion.to);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor group ", g, ": ", status.message()));
    }
    const auto known = std::ranges::find(conversions_, conversion);
    conversion_of_group_.push_back(static_cast<ConversionIndex>(known - conversions_.begin()));
    if (known == conversions_.end()) conversions_.push_back(conversion);
  }
  return absl::OkStatus();
}

absl::Status TensorTable::CheckGroups() {
  for (size_t g = 0; g < spec_.groups.size(); ++g) {
    const TensorGroup& group = spec_.groups[g];
    RETURN_IF_ERROR(CheckIndex(group.source, spec_.sources.size(),
                               absl::StrCat("source placement of tensor group ", g)));
    RETURN_IF_ERROR(CheckIndex(group.destination, spec_.destinations.size(),
                               absl::StrCat("destination placement of tensor group ", g)));
    for (const Side side : {Side::kSource, Side::kDestination}) {
      const Placement& placement = PlacementOf(side, static_cast<int32_t>(g));
      RETURN_IF_ERROR(placement.layout.Validate(placement.mesh, group.shape));
    }
    RETURN_IF_ERROR(CheckSlab(static_cast<int32_t>(g)));
  }
  return CountTensors();
}

absl::Status TensorTable::CheckSlab(int32_t group) const {
  const Slab& slab = spec_.groups[group].slab;
  const int rank = spec_.groups[group].shape.rank();
  if (slab.summand_dimensions < 0 || slab.summand_dimensions > slab.row_dimension ||
      slab.row_dimension > rank) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slab of tensor group ", group, ": expected dimensions from 0 to ", rank, ", found ",
        slab.summand_dimensions, " of summands, and rows from ", slab.row_dimension, " on"));
  }
  if (slab.slabs >= 1 && slab.slabs <= Manifest::kBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("slab of tensor group ", group,
                                                 ": expected one of 1 to ", Manifest::kBytesMax,
                                                 ", found one of ", slab.slabs));
}

absl::Status TensorTable::CountTensors() {
  tensors_in_group_.assign(spec_.groups.size(), 0);
  std::optional<int64_t> bytes = 0;
  std::optional<int64_t> bytes_of_slots = 0;  // if every slot held all of every tensor
  for (size_t t = 0; t < spec_.group_of_tensor.size(); ++t) {
    const int32_t g = spec_.group_of_tensor[t];
    if (g == -1) continue;
    RETURN_IF_ERROR(CheckIndex(g, spec_.groups.size(), absl::StrCat("group of tensor ", t)));
    ++tensors_in_group_[g];
    const int64_t item_bytes =
        std::max(ItemBytesOf(Side::kSource, g), ItemBytesOf(Side::kDestination, g));
    const int64_t tensor_bytes = spec_.groups[g].shape.elements() * item_bytes;
    bytes = CheckedAdd(*bytes, tensor_bytes);
    // Later sums over devices and slots need no check of their own once this one fits.
    const std::optional<int64_t> of_slots =
        CheckedMultiply(tensor_bytes, PlacementOf(Side::kSource, g).mesh.slots() +
                                          PlacementOf(Side::kDestination, g).mesh.slots());
    if (of_slots.has_value()) bytes_of_slots = CheckedAdd(*bytes_of_slots, *of_slots);
    if (!bytes.has_value() || *bytes > Manifest::kBytesMax || !of_slots.has_value() ||
        !bytes_of_slots.has_value() || *bytes_of_slots > kSlotBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors 0 to ", t, ": expected at most ", Manifest::kBytesMax,
                       " bytes, and ", kSlotBytesMax, " with a copy in every slot, found more"));
    }
  }
  return absl::OkStatus();
}

absl::Status TensorTable::CheckScales() {
  is_scales_.assign(spec_.groups.size(), false);
  const std::vector<int32_t>& groups = spec_.group_of_tensor;
  std::vector<int32_t> scaled;  // those that must have scales
  // A table that comes over the network may claim more scales than it has tensors.
  const size_t unscaled = groups.size() - std::min(groups.size(), spec_.scaled_tensors.size());
  for (size_t tensor = 0; tensor < unscaled; ++tensor) {
    if (groups[tensor] >= 0 && HasScales(spec_.groups[groups[tensor]])) {
      scaled.push_back(static_cast<int32_t>(tensor));
    }
  }
  if (scaled != spec_.scaled_tensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("scales: expected those of all ", scaled.size(),
                     " tensors that are sent as F8_E4M3, in their order, found ",
                     spec_.scaled_tensors.size(), ", or others"));
  }
  absl::flat_hash_map<int32_t, int32_t> scales_of_group;
  for (size_t i = 0; i < scaled.size(); ++i) {
    const int32_t of = groups[scaled[i]];
    const int32_t scales = groups[unscaled + i];
    const auto [known, is_new] = scales_of_group.try_emplace(of, scales);
    if (is_new && scales >= 0) RETURN_IF_ERROR(CheckScalesOf(of, scales));
    if (scales < 0 || known->second != scales) {
      return absl::InvalidArgumentError(absl::StrCat("scales of tensor ", scaled[i],
                                                     ": expected in group ", known->second,
                                                     ", found in ", scales));
    }
    is_scales_[scales] = true;
  }
  for (size_t tensor = 0; tensor < unscaled; ++tensor) {
    if (groups[tensor] < 0 || !is_scales_[groups[tensor]]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor group ", groups[tensor], ": expected scales only, found tensor ", tensor));
  }
  return absl::OkStatus();
}

// That group `scales` are the scales of group `of`.
absl::Status TensorTable::CheckScalesOf(int32_t of, int32_t scales) const {
  const TensorGroup& tensor = spec_.groups[of];
  const TensorGroup& group = spec_.groups[scales];
  const auto refused = [&](absl::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat("tensor group ", scales, ": expected ", expected,
                                                   ", as the scales of group ", of));
  };
  ASSIGN_OR_RETURN(const Shape shape, ScaleShape(tensor.shape));
  if (group.shape != shape || group.type != DataType::kF32 ||
      group.sent_as.value_or(DataType::kF32) != DataType::kF32) {
    return refused(absl::StrCat("F32", ToString(shape)));
  }
  for (const Side side : {Side::kSource, Side::kDestination}) {
    ASSIGN_OR_RETURN(const Placement placement, PlaceScales(PlacementOf(side, of), tensor.shape));
    const Placement& found = PlacementOf(side, scales);
    if (found.mesh != placement.mesh ||
        found.layout.Tiles(found.mesh, shape) != placement.layout.Tiles(placement.mesh, shape)) {
      return refused(ToString(placement.layout));
    }
  }
  return absl::OkStatus();
}

std::string TensorTable::NameOf(int32_t group) const {
  const std::string shape = absl::StrCat(" of shape ", ToString(spec_.groups[group].shape));
  if (group >= std::ssize(spec_.names)) return absl::StrCat("tensor group ", group, shape);
  const int64_t others = tensors_in_group_[group] - 1;
  return absl::StrCat("tensor \"", absl::CHexEscape(spec_.names[group]), "\"",
                      others == 0 ? "" : absl::StrCat(" and ", others, " more"), shape);
}

void TensorTable::RankDevices() {
  absl::flat_hash_map<DeviceId, DeviceRank> rank_of;
  for (const Side side : {Side::kSource, Side::kDestination}) {
    for (const Placement& placement : placements(side)) {
      for (const DeviceId& device : placement.mesh.devices()) rank_of.try_emplace(device, 0);
    }
  }
  devices_.reserve(rank_of.size());
  for (const auto& [device, rank] : rank_of) devices_.push_back(device);
  // By host first: so the devices of a host are one range of ranks, on which DevicesOnHost relies.
  std::sort(devices_.begin(), devices_.end());
  for (size_t i = 0; i < devices_.size(); ++i) {
    const std::string& host = devices_[i].host;
    if (hosts_.empty() || hosts_.back() != host) hosts_.push_back(host);
    host_of_device_.push_back(static_cast<HostRank>(hosts_.size()) - 1);
    rank_of[devices_[i]] = static_cast<DeviceRank>(i);
  }
  for (const Side side : {Side::kSource, Side::kDestination}) {
    SideSlots& slots = sides_[static_cast<size_t>(side)];
    for (const Placement& placement : placements(side)) {
      auto& ranks = slots.ranks.emplace_back();
      auto& slot_of_rank = slots.slot_of_rank.emplace_back();
      for (const DeviceId& device : placement.mesh.devices()) {
        ranks.push_back(rank_of[device]);
        slot_of_rank.emplace_back(ranks.back(), static_cast<int32_t>(ranks.size()) - 1);
      }
      std::sort(slot_of_rank.begin(), slot_of_rank.end());
    }
  }
}

absl::Status TensorTable::CountReplicas() {
  const auto& axes = spec_.replica_axes;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (std::find(axes.begin(), axes.begin() + i, axes[i]) != axes.begin() + i) {
      return absl::InvalidArgumentError(
          absl::StrCat("replica axis \"", axes[i], "\": expected once, found twice"));
    }
  }
  replica_of_device_.assign(devices_.size(), -1);
  for (size_t p = 0; p < spec_.destinations.size(); ++p) {
    RETURN_IF_ERROR(CountReplicasOf(static_cast<int32_t>(p)));
  }
  return absl::OkStatus();
}

absl::Status TensorTable::CountReplicasOf(int32_t destination) {
  const Mesh& mesh = spec_.destinations[destination].mesh;
  std::vector<int> axes;
  int64_t replicas = 1;
  for (const std::string& name : spec_.replica_axes) {
    const std::optional<int> axis = mesh.FindAxis(name);
    if (!axis.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "replica axis \"", name, "\": expected on every destination mesh, not found on mesh ",
          AxesToString(mesh.axes())));
    }
    axes.push_back(*axis);
    replicas *= mesh.axes()[*axis].size;
  }
  if (destination == 0) replicas_ = static_cast<int32_t>(replicas);
  if (replicas != replicas_) {
    return absl::InvalidArgumentError(
        absl::StrCat("replicas of destination mesh ", AxesToString(mesh.axes()), ": expected ",
                     replicas_, " as on the others, found ", replicas));
  }
  const std::vector<DeviceRank>& ranks = slots(Side::kDestination, destination);
  for (size_t slot = 0; slot < ranks.size(); ++slot) {
    int32_t replica = 0;
    for (const int axis : axes) {
      replica = static_cast<int32_t>(replica * mesh.axes()[axis].size +
                                     mesh.Coordinate(static_cast<int64_t>(slot), axis));
    }
    int32_t& known = replica_of_device_[ranks[slot]];
    if (known != -1 && known != replica) {
      return absl::InvalidArgumentError(absl::StrCat("device ", ToString(devices_[ranks[slot]]),
                                                     ": expected in one replica, found in ", known,
                                                     " and ", replica));
    }
    known = replica;
  }
  return absl::OkStatus();
}

Digest TensorTable::ComputeDigest() const {
  DigestBuilder builder;
  builder.AddText("crossmesh tensors 1");
  builder.AddDigest(spec_.manifest);
  AddPlacements(spec_.sources, builder);
  AddPlacements(spec_.destinations, builder);
  builder.AddInt(static_cast<int64_t>(spec_.groups.size()));
  for (const TensorGroup& group : spec_.groups) {
    builder.AddInt(group.shape.rank());
    for (const int64_t length : group.shape.lengths()) builder.AddInt(length);
    builder.AddText(DataTypeName(group.type));
    builder.AddInts(group.source, group.destination);
  }
  builder.AddInt(static_cast<int64_t>(spec_.group_of_tensor.size()));
  for (const int32_t group : spec_.group_of_tensor) builder.AddInt(group);
  builder.AddInt(static_cast<int64_t>(spec_.replica_axes.size()));
  for (const std::string& axis : spec_.replica_axes) builder.AddText(axis);
  // Tables without slabs, or without conversions, keep the digest that they had before there were
  // any.
  for (size_t g = 0; g < spec_.groups.size(); ++g) {
    const Slab& slab = spec_.groups[g].slab;
    if (slab == Slab()) continue;
    builder.AddText("slab");
    builder.AddInts(g, slab.summand_dimensions, slab.row_dimension, slab.slabs, slab.in_source,
                    slab.in_destination);
  }
  if (conversions_.empty()) return builder.Finish();
  for (int32_t g = 0; g < std::ssize(spec_.groups); ++g) {
    builder.AddText(DataTypeName(TypeOf(Side::kDestination, g)));
  }
  builder.AddInt(static_cast<int64_t>(spec_.scaled_tensors.size()));
  for (const int32_t tensor : spec_.scaled_tensors) builder.AddInt(tensor);
  return builder.Finish();
}

const std::vector<Placement>& TensorTable::placements(Side side) const {
  return side == Side::kSource ? spec_.sources : spec_.destinations;
}

int32_t TensorTable::placement_of(Side side, int32_t group) const {
  const TensorGroup& g = spec_.groups[group];
  return side == Side::kSource ? g.source : g.destination;
}

const std::vector<DeviceRank>& TensorTable::slots(Side side, int32_t placement) const {
  return sides_[static_cast<size_t>(side)].ranks[placement];
}

std::optional<DeviceRank> TensorTable::FindDevice(const DeviceId& device) const {
  const auto found = std::lower_bound(devices_.begin(), devices_.end(), device);
  if (found == devices_.end() || *found != device) return std::nullopt;
  return static_cast<DeviceRank>(found - devices_.begin());
}

Tile TensorTable::TileOf(Side side, int32_t group, DeviceRank device) const {
  const int32_t placement = placement_of(side, group);
  const auto& slot_of_rank = sides_[static_cast<size_t>(side)].slot_of_rank[placement];
  const auto found =
      std::lower_bound(slot_of_rank.begin(), slot_of_rank.end(), std::pair(device, int32_t{0}));
  if (found == slot_of_rank.end() || found->first != device) return {};
  return TileOfSlot(placements(side)[placement], spec_.groups[group].shape, found->second);
}

int64_t TensorTable::BytesOf(Side side, DeviceRank device) const {
  int64_t bytes = 0;
  for (int32_t g = 0; g < static_cast<int32_t>(spec_.groups.size()); ++g) {
    if (tensors_in_group_[g] == 0 || (side == Side::kSource && is_scales(g))) continue;
    bytes += Volume(TileOf(side, g, device)) * ItemBytesOf(side, g) * tensors_in_group_[g];
  }
  return bytes;
}

DataType TensorTable::TypeOf(Side side, int32_t group) const {
  const TensorGroup& g = spec_.groups[group];
  return side == Side::kSource ? g.type : g.sent_as.value_or(g.type);
}

}  // namespace crossmesh
