#pragma once

#include "common/mesh/box.h"
#include "planner/parallelism/grid.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What of a model has one grid. From one to the next there is nothing but the residual stream, so
// this is where another grid can begin.
enum class ModelPart : uint8_t { kAttention, kMlp, kLogits };
// "attention", "mlp", "logits".
absl::string_view ModelPartName(ModelPart part);

// One of them, in a model.
struct PartPlace {
  ModelPart part = ModelPart::kAttention;
  int64_t layer = 0;  // of all layers; of logits it says nothing

  friend bool operator==(const PartPlace&, const PartPlace&) = default;
};
// "layer3.mlp", "logits".
std::string ToString(const PartPlace& place);

// Some parts, and the grid that they have.
struct GridOfLayers {
  Grid grid;
  std::optional<Interval> layers = std::nullopt;  // nothing: all
  std::optional<ModelPart> part = std::nullopt;   // nothing: attention and MLP

  bool Has(const PartPlace& place) const;
  friend bool operator==(const GridOfLayers&, const GridOfLayers&) = default;
};

// The grids of a model, or of a stage of it, over the same devices.
struct LayerGrids {
  Grid grid;                              // of what no other one names
  std::vector<GridOfLayers> others = {};  // of two that name a part the later one counts

  const Grid& Of(const PartPlace& place) const;
  friend bool operator==(const LayerGrids&, const LayerGrids&) = default;
};

// "r=2,z=4+z=8@mlp+c=2,r=4@0-1.attention": a grid, and those of some parts, each after its @ the
// layers, first and last, a part, or both.
std::string ToString(const LayerGrids& grids);
// InvalidArgument with what is none of this; as ParseGrid.
absl::StatusOr<LayerGrids> ParseLayerGrids(absl::string_view text);
// Is it more than one grid of all layers?
bool NamesLayerGrids(absl::string_view text);

// A stage: some layers, and of the last one logits as well.
struct StageParts {
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool has_logits = true;
};

// The parts of a stage in the order of a forward pass: of each layer attention and MLP, then
// logits.
struct PartsOnGrids {
  std::vector<Grid> grids;  // each once, as they come
  std::vector<PartPlace> places;
  std::vector<int32_t> grid_of;  // by place

  // Does another grid begin with it?
  bool IsJoint(size_t place) const { return place > 0 && grid_of[place] != grid_of[place - 1]; }
};
// InvalidArgument, naming the grid: layers, or a part, that the stage does not have; another count
// of devices than the first one's; as CutsOf. Cost: parts times grids.
absl::StatusOr<PartsOnGrids> PartsOf(const LayerGrids& grids, const StageParts& stage);

// Where any axis of these grids begins and ends, in devices, in the order kGridOrder: ascending,
// from 1 to all devices, each a multiple of the one before. So each axis of each grid is made of
// whole parts. InvalidArgument, naming two grids: axes that cut across each other.
absl::StatusOr<std::vector<int64_t>> CutsOf(std::span<const Grid> grids);

}  // namespace crossmesh
