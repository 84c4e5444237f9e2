#pragma once

#include "examples/pipeline_training/checkpoint_files.h"
#include "examples/pipeline_training/model.h"
#include "examples/pipeline_training/sharded_linear.h"

#include <vector>

#include <absl/status/status.h>

namespace crossmesh::training {

// A stage of the model on its devices. Keeps what a microbatch's later ops need until its weight
// gradient is there.
class TrainingStage {
 public:
  // Of which stages it needs the outputs, in the order of its weights; -1: the model's inputs.
  struct Shape {
    Parallelism parallelism;
    int devices;
    std::vector<int> sources;
    std::vector<int> weights;
    bool last;
  };
  static const Shape& ShapeOf(int stage);

  explicit TrainingStage(int stage);

  const Shape& shape() const { return shape_; }

  // `inputs`: by source. Of the last stage the output is y, and the loss of the microbatch is
  // added.
  Shards Forward(int microbatch, std::vector<Shards> inputs);
  // `output_gradient` is not looked at by the last stage, which begins from its loss. Returns the
  // gradients of the inputs, by source.
  std::vector<Shards> InputGradient(int microbatch, const Shards& output_gradient);
  void WeightGradient(int microbatch);

  // The step is done, or given up. The first returns the loss of the last stage.
  double ApplyGradients();
  void DropGradients();

  // Those of all devices, of "W3" where in it they are; while it has these weights.
  std::vector<CheckpointBox> WeightBoxes() const;
  // Both drop gradients as well. As CheckpointFiles::Read.
  void SetInitialWeights();
  absl::Status SetWeights(const CheckpointFiles& checkpoint);

 private:
  struct Kept {
    std::vector<Shards> inputs;
    Shards output;
    Shards sum_gradient;  // of what the activation is applied to
  };

  void ForgetStep();

  const Shape& shape_;
  std::vector<ShardedLinear> linears_;
  std::vector<Kept> kept_;      // by microbatch
  std::vector<double> losses_;  // likewise
};

}  // namespace crossmesh::training
