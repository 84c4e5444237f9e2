#pragma once

#include "planner/parallelism/grid.h"
#include "planner/parallelism/training.h"
#include "planner/parallelism/transformer.h"

#include <array>
#include <cstdint>

namespace crossmesh {

// What a device has of a matrix of a block.
struct MatrixShape {
  double k = 0;  // of the block in use
  double n = 0;
  double copies = 1;                 // experts of the device; 1 of a dense matrix
  GridAxis summed = GridAxis::kC;    // over which its product is summed: kR of a transposed layer
  GridAxis gradient = GridAxis::kR;  // over which the gradient of its input is
  double elements() const { return k * n * copies; }

  friend bool operator==(const MatrixShape&, const MatrixShape&) = default;
};

// What one device has of a training on a grid, with microbatches of one size.
struct GridShape {
  Grid grid;
  int64_t microbatch = 1;    // sequences of a device
  int64_t microbatches = 1;  // of a step
  int64_t layers = 1;        // of a device, all chunks together
  double rows = 0;           // tokens of a microbatch, of the device's part of sequences
  double in_flight = 1;      // microbatches that the first stage holds
  std::array<MatrixShape, kBlockMatrices> matrices;

  friend bool operator==(const GridShape&, const GridShape&) = default;
};

// Of a grid that CheckGrid accepts.
GridShape ShapeOf(const Transformer& model, const Training& training, const Grid& grid,
                  int64_t microbatch);
// The shape's grid with microbatches of another size; matrices are the same.
void SetMicrobatch(const Training& training, int64_t microbatch, GridShape& shape);

}  // namespace crossmesh
