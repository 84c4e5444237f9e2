#include "examples/pipeline_training/training_stage.h"

#include "common/base/status_macros.h"

#include <numeric>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh::training {

const TrainingStage::Shape& TrainingStage::ShapeOf(int stage) {
  static const Shape kShapes[Model::kStages] = {
      {.parallelism = Parallelism::kColumns, .devices = 1, .sources = {-1}, .weights = {0}},
      {.parallelism = Parallelism::kColumns, .devices = 2, .sources = {0}, .weights = {1}},
      {.parallelism = Parallelism::kRows, .devices = 4, .sources = {1}, .weights = {2}},
      {.parallelism = Parallelism::kBatch,
       .devices = 3,
       .sources = {2, 0},
       .weights = {3, 4},
       .last = true}};
  return kShapes[stage];
}

TrainingStage::TrainingStage(int stage) : shape_(ShapeOf(stage)) { SetInitialWeights(); }

void TrainingStage::SetInitialWeights() {
  linears_.clear();
  for (const int index : shape_.weights) {
    linears_.emplace_back(Model::InitialWeights(index), shape_.parallelism, shape_.devices);
  }
  ForgetStep();
}

void TrainingStage::ForgetStep() {
  kept_.assign(std::size(Model::kMicrobatches), {});
  losses_.assign(std::size(Model::kMicrobatches), 0);
}

Shards TrainingStage::Forward(int microbatch, std::vector<Shards> inputs) {
  Shards output = linears_[0].Forward(inputs[0]);
  for (size_t i = 1; i < linears_.size(); ++i) {
    const Shards more = linears_[i].Forward(inputs[i]);
    for (size_t device = 0; device < output.size(); ++device) output[device] += more[device];
  }
  Kept& kept = kept_[microbatch];
  kept.inputs = std::move(inputs);
  int row = Model::FirstSample(microbatch);
  for (Matrix& shard : output) {
    if (!shape_.last) {
      shard = shard.array().tanh().matrix();
      continue;
    }
    // Each device has its rows of the microbatch.
    const auto rows = static_cast<int>(shard.rows());
    const Matrix error = shard - Model::Targets(row, rows);
    // Over the whole batch, so that microbatches add up.
    losses_[microbatch] += 0.5 * error.cast<double>().squaredNorm() / Model::kBatch;
    kept.sum_gradient.push_back(error / Model::kBatch);
    row += rows;
  }
  kept.output = output;
  return output;
}

std::vector<Shards> TrainingStage::InputGradient(int microbatch, const Shards& output_gradient) {
  Kept& kept = kept_[microbatch];
  for (size_t device = 0; !shape_.last && device < output_gradient.size(); ++device) {
    // The derivative of tanh, by its output.
    kept.sum_gradient.push_back(
        (output_gradient[device].array() * (1 - kept.output[device].array().square())).matrix());
  }
  std::vector<Shards> gradients;
  for (size_t i = 0; i < linears_.size(); ++i) {
    if (shape_.sources[i] >= 0) gradients.push_back(linears_[i].InputGradient(kept.sum_gradient));
  }
  return gradients;
}

void TrainingStage::WeightGradient(int microbatch) {
  Kept& kept = kept_[microbatch];
  for (size_t i = 0; i < linears_.size(); ++i) {
    linears_[i].AddWeightGradient(kept.inputs[i], kept.sum_gradient);
  }
  kept = {};
}

double TrainingStage::ApplyGradients() {
  for (ShardedLinear& linear : linears_) linear.ApplyGradient(Model::kLearningRate);
  const double loss = std::accumulate(losses_.begin(), losses_.end(), 0.0);
  ForgetStep();
  return loss;
}

void TrainingStage::DropGradients() {
  for (ShardedLinear& linear : linears_) linear.DropGradient();
  ForgetStep();
}

std::vector<CheckpointBox> TrainingStage::WeightBoxes() const {
  std::vector<CheckpointBox> boxes;
  for (size_t i = 0; i < linears_.size(); ++i) {
    const std::string name = absl::StrCat("W", shape_.weights[i]);
    const Shards& shards = linears_[i].weights();
    for (int device = 0; device < std::ssize(shards); ++device) {
      const Matrix& shard = shards[device];
      boxes.push_back({.tensor = name,
                       .box = linears_[i].BoxOf(device),
                       .values = std::span(shard.data(), shard.size())});
      // The others have the same.
      if (shape_.parallelism == Parallelism::kBatch) break;
    }
  }
  return boxes;
}

absl::Status TrainingStage::SetWeights(const CheckpointFiles& checkpoint) {
  DropGradients();
  for (size_t i = 0; i < linears_.size(); ++i) {
    const std::string name = absl::StrCat("W", shape_.weights[i]);
    Shards& shards = linears_[i].weights();
    for (int device = 0; device < std::ssize(shards); ++device) {
      Matrix& shard = shards[device];
      RETURN_IF_ERROR(
          checkpoint.Read(name, linears_[i].BoxOf(device), std::span(shard.data(), shard.size())));
    }
  }
  return absl::OkStatus();
}

}  // namespace crossmesh::training
