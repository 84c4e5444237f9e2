#include "common/plan/scale_tensors.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/conversion.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<Tile> ScaleTile(const Shape& tensor, const Tile& tile) {
  Tile scales;
  for (const Box& box : tile) {
    if (box.empty()) continue;
    ASSIGN_OR_RETURN(scales.emplace_back(), ScaleBox(tensor, box));
  }
  return scales;
}

// Adds a placement unless it is there.
int32_t Intern(Placement placement, std::vector<Placement>& placements) {
  const auto known = std::ranges::find(placements, placement);
  const auto index = static_cast<int32_t>(known - placements.begin());
  if (known == placements.end()) placements.push_back(std::move(placement));
  return index;
}

// The scales of a group's tensors.
absl::StatusOr<TensorGroup> ScaleGroup(const TensorGroup& group, TensorTable::Spec& spec) {
  TensorGroup scales{.type = DataType::kF32};
  ASSIGN_OR_RETURN(scales.shape, ScaleShape(group.shape));
  ASSIGN_OR_RETURN(Placement source, PlaceScales(spec.sources[group.source], group.shape));
  ASSIGN_OR_RETURN(Placement destination,
                   PlaceScales(spec.destinations[group.destination], group.shape));
  scales.source = Intern(std::move(source), spec.sources);
  scales.destination = Intern(std::move(destination), spec.destinations);
  return scales;
}

}  // namespace

absl::StatusOr<Placement> PlaceScales(const Placement& placement, const Shape& tensor) {
  ASSIGN_OR_RETURN(const Shape shape, ScaleShape(tensor));
  std::vector<Tile> tiles = placement.layout.Tiles(placement.mesh, tensor);
  for (size_t slot = 0; slot < tiles.size(); ++slot) {
    ASSIGN_OR_RETURN(tiles[slot], At(absl::StrCat("slot ", slot), ScaleTile(tensor, tiles[slot])));
  }
  if (placement.layout.axes() != nullptr && placement.layout.Validate(placement.mesh, shape).ok()) {
    // The layout stays short, however many slots there are.
    if (placement.layout.Tiles(placement.mesh, shape) == tiles) return placement;
  }
  return Placement{.mesh = placement.mesh,
                   .layout = Layout(ExplicitLayout{.slots = std::move(tiles)})};
}

absl::Status AddScales(TensorTable::Spec& spec) {
  absl::flat_hash_map<int32_t, int32_t> scales_of_group;
  // A copy: scales are appended to the list that is walked.
  const std::vector<int32_t> group_of_tensor = spec.group_of_tensor;
  for (size_t tensor = 0; tensor < group_of_tensor.size(); ++tensor) {
    const int32_t group = group_of_tensor[tensor];
    if (group < 0 || !HasScales(spec.groups[group])) continue;
    const auto [scales, is_new] =
        scales_of_group.try_emplace(group, static_cast<int32_t>(spec.groups.size()));
    if (is_new) {
      ASSIGN_OR_RETURN(spec.groups.emplace_back(), ScaleGroup(spec.groups[group], spec));
    }
    spec.group_of_tensor.push_back(scales->second);
    spec.scaled_tensors.push_back(static_cast<int32_t>(tensor));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
