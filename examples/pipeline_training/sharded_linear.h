#pragma once

#include "common/mesh/box.h"
#include "examples/pipeline_training/model.h"

#include <cstdint>
#include <vector>

namespace crossmesh::training {

// How the devices of a stage share a matrix product: what each one has of the input, of the
// weights, and of the output.
enum class Parallelism : uint8_t {
  kColumns,  // all of it; columns; columns
  kRows,     // columns; rows; all of it, summed over the devices
  kBatch,    // rows; all of them; rows
};

// By device of a stage.
using Shards = std::vector<Matrix>;

// output = input * weights, on devices of one process. The sums between devices are taken in the
// order of the devices, so results are the same every time.
class ShardedLinear {
 public:
  // The number of devices divides the weights' columns, or their rows.
  ShardedLinear(const Matrix& weights, Parallelism parallelism, int devices);

  Shards Forward(const Shards& input) const;
  // Of the input, from that of the output.
  Shards InputGradient(const Shards& output_gradient) const;
  // Adds that of the weights to what is there.
  void AddWeightGradient(const Shards& input, const Shards& output_gradient);
  void ApplyGradient(float learning_rate);
  void DropGradient();

  const Shards& gradient() const { return gradient_; }
  const Shards& weights() const { return weights_; }
  Shards& weights() { return weights_; }
  // Where in the whole matrix the weights of a device are.
  Box BoxOf(int device) const;

 private:
  int devices() const { return static_cast<int>(weights_.size()); }

  const Parallelism parallelism_;
  Shards weights_;
  Shards gradient_;
};

// All devices have this.
Shards Everywhere(const Matrix& whole, int devices);

}  // namespace crossmesh::training
