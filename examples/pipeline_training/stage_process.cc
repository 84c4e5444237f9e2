#include "examples/pipeline_training/stage_process.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace crossmesh::training {
namespace {

const PipelineTensor& Find(const std::vector<PipelineTensor>& tensors, int stage) {
  return *std::ranges::find(tensors, stage, &PipelineTensor::other_stage);
}

}  // namespace

StageProcess::StageProcess(int stage, std::vector<DeviceId> devices,
                           std::function<void(double)> on_step)
    : stage_(stage), on_step_(std::move(on_step)) {
  for (const DeviceId& device : devices)
    devices_.emplace(device, static_cast<int>(devices_.size()));
}

absl::Status StageProcess::Run(PipelineLoop& loop) {
  bool is_first_op = true;
  for (;;) {
    const PipelineStep step = loop.Next();
    switch (step.kind) {
      case PipelineStep::Kind::kOp:
        // What an iteration left that was cut short is of no use. A run that begins anew may give
        // the next one the same number.
        if (is_first_op || pending_ != step.op->iteration) stage_.DropGradients();
        is_first_op = false;
        pending_ = step.op->iteration;
        Compute(*step.op);
        loop.Done();
        break;
      case PipelineStep::Kind::kComplete:
        if (pending_ == step.iteration) on_step_(stage_.ApplyGradients());
        pending_.reset();
        break;
      case PipelineStep::Kind::kOver:
        return step.why;
    }
  }
}

void StageProcess::Compute(const PipelineOp& op) {
  switch (op.op.kind) {
    case OpKind::kForward:
      return Forward(op);
    case OpKind::kInputGradient:
      return InputGradient(op);
    case OpKind::kWeightGradient:
      return stage_.WeightGradient(op.op.microbatch);
    case OpKind::kBackward:
      InputGradient(op);
      return stage_.WeightGradient(op.op.microbatch);
  }
}

void StageProcess::Forward(const PipelineOp& op) {
  const TrainingStage::Shape& shape = stage_.shape();
  const auto samples = static_cast<int>(op.samples);
  std::vector<Shards> inputs;
  for (size_t i = 0; i < shape.sources.size(); ++i) {
    if (shape.sources[i] < 0) {
      const Matrix x = Model::Inputs(Model::FirstSample(op.op.microbatch), samples);
      inputs.push_back(Everywhere(x, shape.devices));
      continue;
    }
    const int columns = Model::kRows[shape.weights[i]];
    const bool is_split = shape.parallelism == Parallelism::kRows;
    inputs.push_back(
        Read(Find(op.inputs, shape.sources[i]), is_split ? columns / shape.devices : columns));
  }
  const Shards output = stage_.Forward(op.op.microbatch, std::move(inputs));
  for (const PipelineTensor& tensor : op.outputs) Write(output, tensor);
}

// What several stages need has the sum of their gradients, in the order of the stages.
void StageProcess::InputGradient(const PipelineOp& op) {
  const TrainingStage::Shape& shape = stage_.shape();
  std::vector<const PipelineTensor*> gradients;
  for (const PipelineTensor& tensor : op.inputs) gradients.push_back(&tensor);
  std::ranges::sort(gradients, {}, &PipelineTensor::other_stage);
  const int all_columns = Model::kColumns[shape.weights[0]];
  const int columns =
      shape.parallelism == Parallelism::kColumns ? all_columns / shape.devices : all_columns;
  Shards sum;
  for (const PipelineTensor* const tensor : gradients) {
    const Shards gradient = Read(*tensor, columns);
    if (sum.empty()) {
      sum = gradient;
      continue;
    }
    for (size_t device = 0; device < sum.size(); ++device) sum[device] += gradient[device];
  }
  const std::vector<Shards> inputs = stage_.InputGradient(op.op.microbatch, sum);
  for (size_t i = 0, given = 0; i < shape.sources.size(); ++i) {
    if (shape.sources[i] >= 0) Write(inputs[given++], Find(op.outputs, shape.sources[i]));
  }
}

int StageProcess::DeviceOf(const PipelineTensor::Tile& tile) const {
  return devices_.at(tile.device);
}

Shards StageProcess::Read(const PipelineTensor& tensor, int columns) const {
  Shards shards(devices_.size(), Matrix(0, columns));
  for (const PipelineTensor::Tile& tile : tensor.tiles) {
    const auto rows = static_cast<int>(tile.bytes.size() / sizeof(float)) / columns;
    Matrix& shard = shards[DeviceOf(tile)];
    shard.resize(rows, columns);
    std::memcpy(shard.data(), tile.bytes.data(), tile.bytes.size());
  }
  return shards;
}

void StageProcess::Write(const Shards& shards, const PipelineTensor& tensor) const {
  for (const PipelineTensor::Tile& tile : tensor.tiles) {
    std::memcpy(tile.bytes.data(), shards[DeviceOf(tile)].data(), tile.bytes.size());
  }
}

}  // namespace crossmesh::training
