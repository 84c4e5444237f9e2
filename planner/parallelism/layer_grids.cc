#include "planner/parallelism/layer_grids.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <array>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

constexpr std::array<absl::string_view, 3> kPartNames = {"attention", "mlp", "logits"};
constexpr int64_t kLayersMax = int64_t{1} << 24;

std::optional<ModelPart> PartNamed(absl::string_view name) {
  const auto found = std::ranges::find(kPartNames, name);
  if (found == kPartNames.end()) return std::nullopt;
  return static_cast<ModelPart>(found - kPartNames.begin());
}

// "3", "0-3".
std::optional<Interval> LayersNamed(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  Interval layers;
  if (!absl::SimpleAtoi(ends.first, &layers.begin)) return std::nullopt;
  layers.end = layers.begin;
  if (absl::StrContains(text, '-') && !absl::SimpleAtoi(ends.second, &layers.end)) {
    return std::nullopt;
  }
  if (layers.begin < 0 || layers.end < layers.begin || layers.end >= kLayersMax) {
    return std::nullopt;
  }
  ++layers.end;
  return layers;
}

std::string WhereText(const GridOfLayers& grid) {
  std::string text;
  if (grid.layers.has_value()) {
    absl::StrAppend(&text, grid.layers->begin);
    if (grid.layers->length() > 1) absl::StrAppend(&text, "-", grid.layers->end - 1);
  }
  if (grid.part.has_value()) {
    absl::StrAppend(&text, text.empty() ? "" : ".", ModelPartName(*grid.part));
  }
  return text;
}

std::string ToString(const GridOfLayers& grid) {
  return absl::StrCat(ToString(grid.grid), "@", WhereText(grid));
}

absl::StatusOr<GridOfLayers> ParseGridOfLayers(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> sides =
      absl::StrSplit(text, absl::MaxSplits('@', 1));
  GridOfLayers grid;
  ASSIGN_OR_RETURN(grid.grid, ParseGrid(sides.first));
  std::pair<absl::string_view, absl::string_view> where =
      absl::StrSplit(sides.second, absl::MaxSplits('.', 1));
  grid.part = PartNamed(where.first);
  bool is_known = grid.part.has_value() && where.second.empty();
  if (!grid.part.has_value()) {
    grid.layers = LayersNamed(where.first);
    grid.part = PartNamed(where.second);
    is_known = grid.layers.has_value() && (where.second.empty() || grid.part.has_value());
  }
  // Numbers have one form, and logits no layer.
  if (is_known && WhereText(grid) == sides.second &&
      (!grid.layers.has_value() || grid.part != ModelPart::kLogits)) {
    return grid;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "grid of layers: expected GRID@ and layers, first and last, or attention, mlp or "
      "logits, as in z=8@0-3, z=8@mlp, z=8@2.mlp, found \"",
      text, "\""));
}

}  // namespace

absl::string_view ModelPartName(ModelPart part) { return kPartNames[static_cast<size_t>(part)]; }

std::string ToString(const PartPlace& place) {
  if (place.part == ModelPart::kLogits) return std::string(ModelPartName(place.part));
  return absl::StrCat("layer", place.layer, ".", ModelPartName(place.part));
}

bool GridOfLayers::Has(const PartPlace& place) const {
  if (place.part == ModelPart::kLogits) return part == ModelPart::kLogits;
  if (part.has_value() && *part != place.part) return false;
  return !layers.has_value() || (place.layer >= layers->begin && place.layer < layers->end);
}

const Grid& LayerGrids::Of(const PartPlace& place) const {
  const Grid* of = &grid;
  for (const GridOfLayers& other : others) {
    if (other.Has(place)) of = &other.grid;
  }
  return *of;
}

std::string ToString(const LayerGrids& grids) {
  std::string text = ToString(grids.grid);
  for (const GridOfLayers& other : grids.others) absl::StrAppend(&text, "+", ToString(other));
  return text;
}

absl::StatusOr<LayerGrids> ParseLayerGrids(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '+');
  LayerGrids grids;
  ASSIGN_OR_RETURN(grids.grid, ParseGrid(parts.front()));
  for (size_t i = 1; i < parts.size(); ++i) {
    ASSIGN_OR_RETURN(GridOfLayers other, ParseGridOfLayers(parts[i]));
    grids.others.push_back(std::move(other));
  }
  return grids;
}

bool NamesLayerGrids(absl::string_view text) { return absl::StrContains(text, "+"); }

absl::StatusOr<PartsOnGrids> PartsOf(const LayerGrids& grids, const StageParts& stage) {
  PartsOnGrids parts;
  for (int64_t layer = stage.first_layer; layer < stage.first_layer + stage.layers; ++layer) {
    parts.places.push_back({ModelPart::kAttention, layer});
    parts.places.push_back({ModelPart::kMlp, layer});
  }
  if (stage.has_logits) parts.places.push_back({.part = ModelPart::kLogits});
  for (const GridOfLayers& other : grids.others) {
    const auto has = [&other](const PartPlace& place) { return other.Has(place); };
    const int64_t last = stage.first_layer + stage.layers - 1;
    const bool is_inside = !other.layers.has_value() || (other.layers->begin >= stage.first_layer &&
                                                         other.layers->end <= last + 1);
    if (!is_inside || std::ranges::none_of(parts.places, has)) {
      return absl::InvalidArgumentError(
          absl::StrCat("grid ", ToString(other), ": expected layers of ", stage.first_layer, " to ",
                       last, stage.has_logits ? ", or logits" : "", ", found others"));
    }
    if (other.grid.devices() != grids.grid.devices()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "grid ", ToString(other), ": expected ", grids.grid.devices(), " devices, as ",
          ToString(grids.grid), " has, found ", other.grid.devices()));
    }
  }
  for (const PartPlace& place : parts.places) {
    const Grid& grid = grids.Of(place);
    const auto found = std::ranges::find(parts.grids, grid);
    parts.grid_of.push_back(static_cast<int32_t>(found - parts.grids.begin()));
    if (found == parts.grids.end()) parts.grids.push_back(grid);
  }
  RETURN_IF_ERROR(CutsOf(parts.grids).status());
  return parts;
}

absl::StatusOr<std::vector<int64_t>> CutsOf(std::span<const Grid> grids) {
  struct Cut {
    int64_t devices = 1;
    const Grid* grid = nullptr;
  };
  std::vector<Cut> cuts;
  for (const Grid& grid : grids) {
    const PerAxis<int64_t> inner = InnerSizes(grid, kGridOrder);
    for (const GridAxis axis : kGridAxes) {
      cuts.push_back({inner[axis], &grid});
      cuts.push_back({inner[axis] * grid[axis], &grid});
    }
  }
  std::ranges::stable_sort(cuts, {}, &Cut::devices);
  std::vector<int64_t> places;
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (i > 0 && cuts[i].devices % cuts[i - 1].devices != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("grids ", ToString(*cuts[i - 1].grid), " and ", ToString(*cuts[i].grid),
                       ": expected axes that lie inside each other, found one that ends after ",
                       cuts[i - 1].devices, " devices, and one after ", cuts[i].devices));
    }
    if (places.empty() || places.back() != cuts[i].devices) places.push_back(cuts[i].devices);
  }
  return places;
}

}  // namespace crossmesh
