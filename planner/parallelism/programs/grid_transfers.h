#pragma once

#include "common/mesh/data_type.h"
#include "common/mesh/layout.h"
#include "planner/layers/layer_program.h"
#include "planner/parallelism/grid.h"
#include "planner/parallelism/programs/grid_mesh.h"
#include "planner/parallelism/transformer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

// What the transfers of one stage, or of its parts on one grid, are made of.
struct StageSizes {
  std::string stage;  // what the names of its transfers begin with: "", "stage1.",
  std::string part;   // and then: "", "grid0."
  Grid grid;
  MeshAxes axes;           // of the grid, on the stage's mesh
  bool scattered = false;  // ActivationForm::kScattered
  bool diagonal = false;   // VectorForm::kDiagonal
  int64_t rows = 0;        // of a message: tokens of a microbatch, or of half of it, on all devices
  int64_t hidden = 0;
  DataType type = DataType::kBF16;  // of activations, weights, and gradients before they add up
  int32_t halves = 1;
  int32_t scatter_buffers = 1;
};

// What moves inside a stage: tensors, layouts and sums, by what they are for. Rows lie over data
// and z, and scattered ones over the axis that gave them as well; features over c or r. Each is
// nothing where its group is one device: then there is nothing to move.
class GridTransfers {
 public:
  using Transfer = std::optional<LayerProgram::Transfer>;

  explicit GridTransfers(StageSizes sizes) : sizes_(std::move(sizes)) {}

  // Of a matrix of k x n, stored as its block's elements in a row, each device its part of z.
  Transfer Gather(const BlockMatrix& matrix) const;          // before the product
  Transfer BackwardGather(const BlockMatrix& matrix) const;  // the same, for the backward pass
  Transfer Scatter(const BlockMatrix& matrix) const;         // of its gradient
  Transfer DataSum(const BlockMatrix& matrix) const;         // of that, over copies
  // Of activations around its product, rows x k and rows x n.
  Transfer Rows(const BlockMatrix& matrix) const;
  Transfer Sum(const BlockMatrix& matrix) const;
  Transfer GradientRows(const BlockMatrix& matrix) const;
  Transfer GradientSum(const BlockMatrix& matrix) const;
  // Two numbers of each row, of the norm before a normal layer.
  Transfer NormSum(const BlockMatrix& matrix) const;
  Transfer NormGradientSum(const BlockMatrix& matrix) const;
  // Of the rows' logits: the greatest; the sum of exponents and the target's logit.
  Transfer LossMax() const;
  Transfer LossSum() const;
  // Gradients of what is cut over one axis of c and r alone, and copied over all else: so many
  // elements of all devices.
  Transfer Vectors(GridAxis axis, int64_t elements) const;

  // Of the same on the diagonal of c and r (VectorForm::kDiagonal), once more cut by z: parameters
  // before they are used; their gradients, of each device its sum over z and data, and then those
  // sums to the diagonal, one after the other.
  Transfer SpreadVectors(GridAxis axis, int64_t elements) const;
  Transfer ScatterVectors(GridAxis axis, int64_t elements) const;
  Transfer ReduceVectors(GridAxis axis, int64_t elements) const;

  // Of the residual stream, to the parts of the stage that have `to`, or of its gradient. Nothing
  // where it lies the same.
  Transfer Joining(absl::string_view what, const GridTransfers& to) const;

  // Of activations after the last block, to the stage that has `to`; or of their gradients before
  // the first one. Rows x hidden, however many devices there are.
  LayerProgram::Transfer Leaving(absl::string_view what, const GridTransfers& to) const;

 private:
  struct Sides {
    GridAxis summed = GridAxis::kC;   // cuts k, over which the product is summed
    GridAxis columns = GridAxis::kR;  // cuts n
  };
  static Sides SidesOf(const BlockMatrix& matrix);
  std::vector<std::string> RowAxes(std::optional<GridAxis> scattered_over) const;
  Layout Activations(std::optional<GridAxis> scattered_over, GridAxis features) const;
  Layout BetweenBlocks() const { return LayoutBetweenBlocks(sizes_.axes, sizes_.scattered); }
  Transfer Of(absl::string_view name, std::vector<LayerProgram::Tensor> tensors,
              const std::vector<GridAxis>& partial, int32_t buffers) const;
  // A matrix as devices store it, on so many copies of the model: blocks of c and r, each a row of
  // elements; and how these lie, the rows whole or cut by z.
  struct BlockTensor {
    TensorSpec tensor;
    Layout whole;
    Layout shards;
  };
  BlockTensor BlocksOf(const BlockMatrix& matrix, DataType type, bool of_each_copy) const;
  Transfer GatherOf(const BlockMatrix& matrix, absl::string_view what) const;
  // Of what `axis` cuts: so many in the first dimension, all of them on the diagonal alone.
  Layout Diagonal(GridAxis axis, int64_t elements, std::optional<int64_t> summands) const;
  Transfer RowSums(absl::string_view name, int64_t numbers, const Sides& sides,
                   ReductionKind kind) const;
  bool IsCut(GridAxis axis) const { return sizes_.grid[axis] > 1; }
  const std::vector<std::string>& On(GridAxis axis) const { return sizes_.axes[axis]; }

  StageSizes sizes_;
};

}  // namespace crossmesh
