#include "examples/pipeline_training/training_stage.h"

#include <cstring>
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

TrainingStage::TrainingStage(int stage) : shape_(ShapeOf(stage)) {
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

std::string TrainingStage::WeightBytes() const {
  std::string bytes;
  for (const ShardedLinear& linear : linears_) {
    for (const Matrix& shard : linear.weights()) {
      bytes.append(reinterpret_cast<const char*>(shard.data()), shard.size() * sizeof(float));
    }
  }
  return bytes;
}

absl::Status TrainingStage::SetWeightBytes(absl::string_view bytes) {
  const size_t expected = WeightBytes().size();
  if (bytes.size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: expected ", expected, " bytes, found ", bytes.size()));
  }
  for (ShardedLinear& linear : linears_) {
    for (Matrix& shard : linear.weights()) {
      const size_t size = shard.size() * sizeof(float);
      std::memcpy(shard.data(), bytes.data(), size);
      bytes.remove_prefix(size);
    }
  }
  DropGradients();
  return absl::OkStatus();
}

}  // namespace crossmesh::training
