#include "planner/parallelism/grid_shape.h"

#include "planner/parallelism/pipeline_law.h"

#include <utility>

namespace crossmesh {

namespace {

MatrixShape ShapeOfMatrix(const Transformer& model, const BlockMatrix& matrix, const Grid& grid) {
  MatrixShape shape;
  if (matrix.transposed) std::swap(shape.summed, shape.gradient);
  shape.k = static_cast<double>(matrix.k) / static_cast<double>(grid[shape.summed]);
  shape.n = static_cast<double>(matrix.n) / static_cast<double>(grid[shape.gradient]);
  if (matrix.of_experts) {
    shape.copies = static_cast<double>(model.experts) / static_cast<double>(grid.expert());
  }
  return shape;
}

}  // namespace

GridShape ShapeOf(const Transformer& model, const Training& training, const Grid& grid,
                  int64_t microbatch) {
  GridShape shape{.grid = grid, .layers = model.layers / grid.pipeline(), .matrices = {}};
  SetMicrobatch(training, microbatch, shape);
  const std::array<BlockMatrix, kBlockMatrices> matrices = MatricesOf(model);
  for (int i = 0; i < kBlockMatrices; ++i) {
    shape.matrices[i] = ShapeOfMatrix(model, matrices[i], grid);
  }
  return shape;
}

void SetMicrobatch(const Training& training, int64_t microbatch, GridShape& shape) {
  const Grid& grid = shape.grid;
  shape.microbatch = microbatch;
  shape.microbatches = training.batch / (grid.sample_groups() * microbatch);
  shape.rows =
      static_cast<double>(microbatch * training.sequence) / static_cast<double>(grid.context());
  shape.in_flight =
      InFlight(training.schedule, grid.pipeline(), shape.microbatches, training.chunks);
}

}  // namespace crossmesh
