#pragma once

#include "common/base/digest.h"
#include "common/mesh/conversion.h"
#include "common/mesh/data_type.h"
#include "common/mesh/device.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "common/plan/indices.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Where one side of a tensor lies. Tensors that exist only on a part of a mesh (pipeline stages,
// experts) have a placement whose mesh is that sub-mesh.
struct Placement {
  Mesh mesh;
  Layout layout;
  friend bool operator==(const Placement&, const Placement&) = default;
};

// What a tensor of a course's step (course.h) is of a tensor of the manifest: one of the slabs into
// which that is cut along one of its dimensions, or along a part of one. A dimension in front may
// number summands, where slots hold summands of one value.
//
// Example: the slabs of a tensor [8, 6] with four slabs of its rows are tensors [2, 6] with
// row_dimension 0; in a tile with all slabs they lie one after the other. With three slabs of its
// columns they are [8, 2] with row_dimension 1, and rows of a slab lie 6 elements apart.
struct Slab {
  int32_t summand_dimensions = 0;  // so many come first
  int32_t row_dimension = 0;       // what cuts the tensor into slabs comes before this dimension
  int64_t slabs = 1;
  // Whether the tiles of that side are parts of tiles with all slabs.
  bool in_source = false;
  bool in_destination = false;

  // So many rows of such a tile follow each other where the slab has one.
  int64_t RowPitch(Side side) const {
    return (side == Side::kSource ? in_source : in_destination) ? slabs : 1;
  }
  friend bool operator==(const Slab&, const Slab&) = default;
};

// Tensors of one shape and type with the same placements on both sides: all are sliced alike.
struct TensorGroup {
  Shape shape;
  DataType type = DataType::kF32;  // in source tiles
  int32_t source = 0;              // index into TensorTable::placements(kSource)
  int32_t destination = 0;         // index into TensorTable::placements(kDestination)
  // In destination tiles, and so on the way there. Nothing: `type`.
  std::optional<DataType> sent_as = std::nullopt;
  Slab slab = {};
  friend bool operator==(const TensorGroup&, const TensorGroup&) = default;
};

// Are its tensors converted to F8_E4M3 to be sent? Then they have scales (scale_tensors.h).
inline bool HasScales(const TensorGroup& group) {
  return group.sent_as == DataType::kF8E4M3 && group.type != DataType::kF8E4M3;
}

// What a request moves, symbolically: the tensors of a manifest in its order, each in a group, and
// where both sides lie. After them come scales, of which no source has memory. Address-free.
// Immutable; thread-safe. Shared by plan, parts and planner.
class TensorTable {
 public:
  struct Spec {
    std::vector<Placement> sources;
    std::vector<Placement> destinations;
    std::vector<TensorGroup> groups;
    std::vector<int32_t> group_of_tensor;  // in manifest order; -1: this tensor is not moved
    // Whose scales the last tensors are, in this order.
    std::vector<int32_t> scaled_tensors;
    Digest manifest;
    // Axes of the destination meshes that count replicas; none: all of it is one replica.
    std::vector<std::string> replica_axes;
    // Of the first tensor of each group, for messages alone: of the first kNamesMax groups. What
    // comes over the network has none.
    std::vector<std::string> names;
  };
  static constexpr size_t kNamesMax = 4096;

  // So that no sum over devices overflows.
  static constexpr int64_t kSlotBytesMax = int64_t{1} << 61;

  // Validates every layout against its mesh and shape. InvalidArgument: what Layout::Validate or
  // CheckConversion finds; an index out of range; a slab with other dimensions than its tensor has;
  // scales other than AddScales adds; tensors of more than Manifest::kBytesMax bytes together, or
  // of more than kSlotBytesMax if every slot of their meshes held them whole; a destination mesh
  // without a replica axis, or with another size of one than the others; a device that two
  // destination placements count to different replicas. Cost: slots times groups.
  static absl::StatusOr<TensorTable> Create(Spec spec);

  const std::vector<Placement>& placements(Side side) const;
  // Index into placements(side).
  int32_t placement_of(Side side, int32_t group) const;
  const Placement& PlacementOf(Side side, int32_t group) const {
    return placements(side)[placement_of(side, group)];
  }
  const std::vector<TensorGroup>& groups() const { return spec_.groups; }
  const std::vector<int32_t>& group_of_tensor() const { return spec_.group_of_tensor; }
  int64_t tensors_in_group(int32_t group) const { return tensors_in_group_[group]; }
  // For people: tensor "wte" and 3 others of shape [8, 8]; without names, by the group's number.
  std::string NameOf(int32_t group) const;
  DataType TypeOf(Side side, int32_t group) const;
  // Of an element in the tiles of that side. Packed elements are those of destination tiles.
  int64_t ItemBytesOf(Side side, int32_t group) const { return ItemBytes(TypeOf(side, group)); }
  // Those of the groups, each once.
  const std::vector<Conversion>& conversions() const { return conversions_; }
  // kNoConversion where both sides have one type.
  ConversionIndex conversion_of(int32_t group) const { return conversion_of_group_[group]; }
  // Are the group's tensors scales?
  bool is_scales(int32_t group) const { return is_scales_[group]; }
  // Index of the first tensor of scales, so the number of tensors in the manifest.
  int32_t first_scales() const {
    return static_cast<int32_t>(spec_.group_of_tensor.size() - spec_.scaled_tensors.size());
  }
  const Digest& manifest() const { return spec_.manifest; }
  // Of everything in the spec but names.
  const Digest& digest() const { return digest_; }
  const Spec& spec() const { return spec_; }

  // All devices of all placements, sorted by host and index; a rank is a place in this list.
  const std::vector<DeviceId>& devices() const { return devices_; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  HostRank host_of(DeviceRank device) const { return host_of_device_[device]; }
  // Ranks of the slots of a placement, in slot order.
  const std::vector<DeviceRank>& slots(Side side, int32_t placement) const;
  // Nothing when the device is not in these placements.
  std::optional<DeviceRank> FindDevice(const DeviceId& device) const;

  int32_t replicas() const { return replicas_; }
  // 0 <= replica < replicas(); -1 for a device that receives nothing.
  int32_t replica_of(DeviceRank device) const { return replica_of_device_[device]; }

  // The tile that `device` holds of a tensor of `group`; empty when it holds none.
  Tile TileOf(Side side, int32_t group, DeviceRank device) const;
  // Bytes of all tiles that `device` holds on a side, without alignment and, at the source, without
  // scales. Cost: linear in groups.
  int64_t BytesOf(Side side, DeviceRank device) const;

 private:
  // One side's placements, resolved to ranks.
  struct SideSlots {
    std::vector<std::vector<DeviceRank>> ranks;  // [placement][slot]
    // [placement]: (rank, slot), ascending.
    std::vector<std::vector<std::pair<DeviceRank, int32_t>>> slot_of_rank;
  };

  explicit TensorTable(Spec spec) : spec_(std::move(spec)) {}
  absl::Status CheckGroups();
  absl::Status CheckSlab(int32_t group) const;
  absl::Status ListConversions();
  absl::Status CountTensors();
  absl::Status CheckScales();
  absl::Status CheckScalesOf(int32_t of, int32_t scales) const;
  void RankDevices();
  absl::Status CountReplicas();
  absl::Status CountReplicasOf(int32_t destination);
  Digest ComputeDigest() const;

  Spec spec_;
  std::vector<DeviceId> devices_;
  std::vector<std::string> hosts_;
  std::vector<HostRank> host_of_device_;
  std::vector<int32_t> replica_of_device_;
  std::vector<int64_t> tensors_in_group_;
  std::vector<Conversion> conversions_;
  std::vector<ConversionIndex> conversion_of_group_;
  std::vector<bool> is_scales_;  // [group]
  std::array<SideSlots, 2> sides_;
  int32_t replicas_ = 1;
  Digest digest_;
};

}  // namespace crossmesh
