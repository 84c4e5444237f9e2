#include "examples/pipeline_training/stage_process.h"

#include "common/base/status_macros.h"
#include "common/mesh/data_type.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh::training {
namespace {

absl::StatusOr<const PipelineTensor*> Find(const Op& op, const std::vector<PipelineTensor>& tensors,
                                           int stage) {
  const auto found = std::ranges::find(tensors, stage, &PipelineTensor::other_stage);
  if (found != tensors.end()) return &*found;
  return absl::InvalidArgumentError(
      absl::StrCat(ToString(op), ": expected a tensor of stage ", stage, ", found none"));
}

// Lengths that differ by 1 at most, the greater ones first.
std::vector<int> BalancedParts(int length, int parts) {
  std::vector<int> lengths(parts, length / parts);
  for (int part = 0; part < length % parts; ++part) ++lengths[part];
  return lengths;
}

}  // namespace

StageProcess::StageProcess(int stage, std::vector<DeviceId> devices, Options options)
    : number_(stage),
      stage_(stage),
      on_step_(std::move(options.on_step)),
      checkpoints_(options.checkpoints.empty()
                       ? std::nullopt
                       : std::make_optional<Checkpoints>(options.checkpoints)) {
  for (const DeviceId& device : devices)
    devices_.emplace(device, static_cast<int>(devices_.size()));
}

absl::Status StageProcess::Run(PipelineLoop& loop) {
  bool is_first_op = true;
  for (;;) {
    const PipelineStep step = loop.Next();
    switch (step.kind) {
      case PipelineStep::Kind::kOp:
      case PipelineStep::Kind::kPair:
        // What an iteration left that was cut short is of no use. A run that begins anew may give
        // the next one the same number.
        if (is_first_op || pending_ != step.op->iteration) stage_.DropGradients();
        is_first_op = false;
        pending_ = step.op->iteration;
        loop.Answer(Compute(step));
        break;
      case PipelineStep::Kind::kComplete:
        if (std::exchange(pending_, std::nullopt) == step.iteration) {
          RETURN_IF_ERROR(Complete(step.iteration));
        }
        break;
      case PipelineStep::Kind::kStateLost:
        loop.Answer(GoBack(step));
        break;
      case PipelineStep::Kind::kOver:
        return step.why;
    }
  }
}

absl::Status StageProcess::Complete(int64_t iteration) {
  on_step_(step_++, stage_.ApplyGradients());
  if (!checkpoints_.has_value()) return absl::OkStatus();
  return checkpoints_->Write(number_, iteration, step_, stage_.WeightBoxes());
}

// All processes have to choose the same checkpoint. What the lost ones have written stays as it is;
// the others have it as well, since none is more than one behind: a process begins an iteration
// when it has written the checkpoint of the last one, and an iteration is complete with all of
// them. This one has none more to write: what was complete is told before what is lost.
absl::Status StageProcess::GoBack(const PipelineStep& step) {
  if (step.iteration >= 0 && !checkpoints_.has_value()) {
    return absl::FailedPreconditionError("expected checkpoints to go back to, found none");
  }
  // Each stage of this pipeline is a rank. Weights are what they were at first until an iteration
  // is complete.
  const int64_t chosen = step.iteration < 0 ? -1 : checkpoints_->NewestOf(step.lost_ranks);
  if (chosen < 0) {
    stage_.SetInitialWeights();
    step_ = 0;
  } else {
    ASSIGN_OR_RETURN(const CheckpointFiles checkpoint, checkpoints_->Open(number_, chosen));
    RETURN_IF_ERROR(stage_.SetWeights(checkpoint));
    step_ = static_cast<int32_t>(checkpoint.steps());
  }
  if (checkpoints_.has_value()) checkpoints_->GoBackTo(number_, chosen);
  return absl::OkStatus();
}

// There is nothing here that overlaps: the ops of a pair take turns.
absl::Status StageProcess::Compute(const PipelineStep& step) {
  RETURN_IF_ERROR(Compute(*step.op));
  return step.backward == nullptr ? absl::OkStatus() : Compute(*step.backward);
}

absl::Status StageProcess::Compute(const PipelineOp& op) {
  const int microbatch = op.op.microbatch;
  const auto count = static_cast<int>(std::size(Model::kMicrobatches));
  if (op.op.stage != number_) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(op.op), ": expected an op of stage ", number_));
  }
  if (microbatch >= count || op.samples != Model::kMicrobatches[microbatch]) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToString(op.op), ": expected ", count, " microbatches of ",
        absl::StrJoin(Model::kMicrobatches, ", "), " samples, found one of ", op.samples));
  }
  switch (op.op.kind) {
    case OpKind::kForward:
      return Forward(op);
    case OpKind::kInputGradient:
      return InputGradient(op);
    case OpKind::kWeightGradient:
      break;
    case OpKind::kBackward:
      RETURN_IF_ERROR(InputGradient(op));
      break;
  }
  stage_.WeightGradient(microbatch);
  return absl::OkStatus();
}

absl::Status StageProcess::Forward(const PipelineOp& op) {
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
    ASSIGN_OR_RETURN(const PipelineTensor* const tensor, Find(op.op, op.inputs, shape.sources[i]));
    ASSIGN_OR_RETURN(Shards input, Read(op, *tensor, is_split ? columns / shape.devices : columns));
    inputs.push_back(std::move(input));
  }
  const Shards output = stage_.Forward(op.op.microbatch, std::move(inputs));
  for (const PipelineTensor& tensor : op.outputs) RETURN_IF_ERROR(Write(op, output, tensor));
  return absl::OkStatus();
}

// What several stages need has the sum of their gradients, in the order of the stages.
absl::Status StageProcess::InputGradient(const PipelineOp& op) {
  const TrainingStage::Shape& shape = stage_.shape();
  std::vector<const PipelineTensor*> gradients;
  for (const PipelineTensor& tensor : op.inputs) gradients.push_back(&tensor);
  std::ranges::sort(gradients, {}, &PipelineTensor::other_stage);
  if (gradients.empty() != shape.last) {
    return absl::InvalidArgumentError(absl::StrCat(ToString(op.op), ": expected ",
                                                   shape.last ? "no" : "a", " gradient, found ",
                                                   gradients.size()));
  }
  const int all_columns = Model::kColumns[shape.weights[0]];
  const int columns =
      shape.parallelism == Parallelism::kColumns ? all_columns / shape.devices : all_columns;
  Shards sum;
  for (const PipelineTensor* const tensor : gradients) {
    ASSIGN_OR_RETURN(Shards gradient, Read(op, *tensor, columns));
    if (sum.empty()) {
      sum = std::move(gradient);
      continue;
    }
    for (size_t device = 0; device < sum.size(); ++device) sum[device] += gradient[device];
  }
  const std::vector<Shards> inputs = stage_.InputGradient(op.op.microbatch, sum);
  for (size_t i = 0, given = 0; i < shape.sources.size(); ++i) {
    if (shape.sources[i] < 0) continue;
    ASSIGN_OR_RETURN(const PipelineTensor* const tensor, Find(op.op, op.outputs, shape.sources[i]));
    RETURN_IF_ERROR(Write(op, inputs[given++], *tensor));
  }
  return absl::OkStatus();
}

absl::StatusOr<Shards> StageProcess::Read(const PipelineOp& op, const PipelineTensor& tensor,
                                          int columns) const {
  const bool is_split = stage_.shape().parallelism == Parallelism::kBatch;
  const std::vector<int> rows_of_device =
      is_split ? BalancedParts(static_cast<int>(op.samples), stage_.shape().devices)
               : std::vector<int>(devices_.size(), static_cast<int>(op.samples));
  Shards shards;
  for (const int rows : rows_of_device) shards.emplace_back(Matrix::Zero(rows, columns));
  RETURN_IF_ERROR(CheckTiles(op.op, tensor, shards));
  for (const PipelineTensor::Tile& tile : tensor.tiles) {
    std::memcpy(shards[devices_.at(tile.device)].data(), tile.bytes.data(), tile.bytes.size());
  }
  return shards;
}

absl::Status StageProcess::Write(const PipelineOp& op, const Shards& shards,
                                 const PipelineTensor& tensor) const {
  RETURN_IF_ERROR(CheckTiles(op.op, tensor, shards));
  for (const PipelineTensor::Tile& tile : tensor.tiles) {
    std::memcpy(tile.bytes.data(), shards[devices_.at(tile.device)].data(), tile.bytes.size());
  }
  return absl::OkStatus();
}

absl::Status StageProcess::CheckTiles(const Op& op, const PipelineTensor& tensor,
                                      const Shards& shards) const {
  const std::string what =
      absl::StrCat(ToString(op), ": tensor ", tensor.name, " of stage ", tensor.other_stage);
  if (tensor.type != DataType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": expected F32, found ", DataTypeName(tensor.type)));
  }
  for (const PipelineTensor::Tile& tile : tensor.tiles) {
    const auto device = devices_.find(tile.device);
    if (device == devices_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": ", ToString(tile.device), " is no device of the stage"));
    }
    const size_t bytes = shards[device->second].size() * sizeof(float);
    if (tile.bytes.size() == bytes) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, ": expected ", bytes, " bytes on ",
                                                   ToString(tile.device), ", found ",
                                                   tile.bytes.size()));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh::training
