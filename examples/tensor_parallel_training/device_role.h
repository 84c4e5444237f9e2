#pragma once

#include "common/mesh/box.h"
#include "common/mesh/layout.h"
#include "examples/tensor_parallel_training/parameters.h"
#include "planner/parallelism/programs/grid_program.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crossmesh::grid_training {

// A grid of a stage, and where on it a device is.
struct GridPlace {
  Grid grid;
  PerAxis<int64_t> place = {};  // its coordinate on each axis
  std::string prefix = {};      // of the names of what moves on this grid: "", "grid0."
};

// What one device of a grid has of the training: which layers, and its place on every axis.
struct DeviceRole {
  TrainingSettings settings;
  StageLayers stage;
  std::vector<GridPlace> grids;
  std::vector<int32_t> grid_of = {};  // by part; nothing: all are on the first grid
  ActivationForm form = ActivationForm::kReplicated;
  VectorForm vectors = VectorForm::kReplicated;
  int32_t microbatches = 1;
  int32_t halves = 1;         // of each microbatch
  int64_t cached_layers = 0;  // whose gathered weights stay for the backward pass

  size_t GridOf(size_t part) const { return grid_of.empty() ? 0 : grid_of[part]; }
  const GridPlace& OnPart(size_t part) const { return grids[GridOf(part)]; }
};
// Of a slot of a stage's mesh. `request` is one that MakeGridProgram accepts, of a model as
// TrainingSettings says.
DeviceRole RoleOf(const GridProgramRequest& request, const Optimizer& optimizer, size_t stage,
                  int64_t slot);

// A matrix of the stage, in the order of a forward pass.
struct MatrixUse {
  BlockMatrix matrix;
  std::string key;                  // "layer3.qkv", "logits"
  GridAxis summed = GridAxis::kC;   // cuts k
  GridAxis columns = GridAxis::kR;  // cuts n
  bool is_kept = false;             // as DeviceRole::cached_layers
  size_t part = 0;                  // as Parameter::part
  bool is_joint = false;            // the one before it is on another grid
};
std::vector<MatrixUse> UsesOf(const DeviceRole& role);

// A microbatch, or a half of one, on its way through the stage and back.
struct PassId {
  int32_t microbatch = 0;
  int32_t half = -1;  // 0 or 1; -1: the whole
  friend auto operator<=>(const PassId&, const PassId&) = default;
};
// Tokens of the batch that the device has: rows lie over data and z, and in scattered form over
// another axis.
Interval RowsOf(const DeviceRole& role, const GridPlace& on, const PassId& pass,
                std::optional<GridAxis> scattered_over);

// Is it one that only the devices of the diagonal store?
inline bool IsOnDiagonal(const DeviceRole& role, const Parameter& parameter) {
  return role.vectors == VectorForm::kDiagonal && parameter.is_vector;
}
// What the device stores of a parameter: a block; of a matrix a part of the block's elements in a
// row, which may begin and end inside rows; of a vector on the diagonal such a part, or nothing. In
// the order of its memory.
Tile TileOf(const DeviceRole& role, const Parameter& parameter);

// Calls visit(element, row, column) for each element of TileOf.
template <typename Visit>
void VisitStored(const DeviceRole& role, const Parameter& parameter, Visit visit) {
  int64_t element = 0;
  for (const Box& box : TileOf(role, parameter)) {
    for (int64_t row = box[0].begin; row < box[0].end; ++row) {
      for (int64_t column = box[1].begin; column < box[1].end; ++column) {
        visit(element++, row, column);
      }
    }
  }
}

// For the elements that the device stores: of a block [rows, columns], or of a part of one
// [1, elements].
Matrix RoomFor(const DeviceRole& role, const Parameter& parameter);
// These elements, of the whole parameter.
Matrix CutParameter(const DeviceRole& role, const Parameter& parameter, const Matrix& whole);

}  // namespace crossmesh::grid_training
