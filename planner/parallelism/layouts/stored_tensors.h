#pragma once

#include "planner/parallelism/grid.h"
#include "planner/parallelism/layouts/grid_layouts.h"
#include "planner/parallelism/transformer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crossmesh {

// A dimension of a stored tensor, of one or several equal parts in a row, each of which the axis
// cuts, if it cuts at all. A device stores its share of the parts one after the other.
struct StoredDimension {
  int64_t length = 0;
  std::optional<GridAxis> axis = std::nullopt;
  int64_t parts = 1;
};

enum class StoredPlace : uint8_t { kFirstStage, kLayer, kLastStage };

// Tensors of one pattern, which has {l} for the layer and {e} for the expert, if it is of some.
struct StoredTensor {
  std::string pattern;
  std::vector<StoredDimension> dimensions;
  StoredPlace place = StoredPlace::kLayer;
  bool is_matrix = false;  // of a product: z cuts the block's elements
  bool of_experts = false;
};

// The parameters of a model as a family stores them: for each name one pattern that matches it
// alone among them.
std::vector<StoredTensor> StoredTensors(const Transformer& model, WeightFamily family);

}  // namespace crossmesh
