#include "examples/tensor_parallel_training/grid_process.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/data_type.h"
#include "common/mesh/mesh.h"
#include "examples/tensor_parallel_training/state_checkpoint.h"
#include "planner/parallelism/programs/grid_op.h"
#include "planner/parallelism/programs/stage_schedule.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh::grid_training {
namespace {

std::map<std::string, std::vector<PhaseOfDevice::Output>> OutputsOf(const LayerProgram& program,
                                                                    RankIndex rank, int64_t slot) {
  std::map<std::string, std::vector<PhaseOfDevice::Output>> outputs;
  for (const LayerProgram::Transfer& transfer : program.transfers) {
    if (program.from(transfer) != rank) continue;
    const LayerProgram::Tensor& tensor = transfer.tensors.front();
    const std::vector<Tile> tiles =
        tensor.source.Tiles(*program.ranks[rank].mesh, tensor.tensor.shape);
    for (const LayerProgram::Message& message : transfer.messages) {
      outputs[program.ops[message.producer].name].push_back(
          {.transfer = transfer.name, .bytes = Volume(tiles[slot]) * sizeof(float)});
    }
  }
  return outputs;
}

}  // namespace

absl::StatusOr<std::optional<PhaseOfDevice>> PhaseOn(const TrainingPhase& phase,
                                                     const TrainingSettings& settings,
                                                     std::span<const DeviceId> devices,
                                                     const DeviceId& device) {
  ASSIGN_OR_RETURN(const GridProgramRequest request, RequestOf(phase, settings, devices));
  ASSIGN_OR_RETURN(const LayerProgram program, MakeGridProgram(request));
  const std::vector<std::vector<StageIndex>> stages_of =
      StagesOfRanks(request.schedule, request.stages.size());
  for (size_t rank = 0; rank < stages_of.size(); ++rank) {
    const std::vector<DeviceId>& of_rank = program.ranks[rank].mesh->devices();
    const auto found = std::ranges::find(of_rank, device);
    if (found == of_rank.end()) continue;
    const int64_t slot = found - of_rank.begin();
    ASSIGN_OR_RETURN(StateMemory memory,
                     StateMemory::Create(SideOf(request, settings, ""), settings, device));
    PhaseOfDevice here{.device = device,
                       .memory = std::move(memory),
                       .outputs = OutputsOf(program, static_cast<RankIndex>(rank), slot)};
    for (const StageIndex stage : stages_of[rank]) {
      here.roles.emplace(stage, RoleOf(request, settings.optimizer, stage, slot));
    }
    return here;
  }
  return std::nullopt;
}

GridProcess::GridProcess(const PhaseOfDevice& phase, const TrainingSettings& settings,
                         Options options)
    : phase_(phase),
      options_(std::move(options)),
      checkpoints_(options_.checkpoints.empty()
                       ? std::nullopt
                       : std::make_optional<training::Checkpoints>(options_.checkpoints)) {
  const Tensors whole = InitialState(settings);
  for (const auto& [stage, role] : phase.roles) stages_.try_emplace(stage, role, whole);
}

absl::Status GridProcess::SetState(std::span<const std::byte> memory, int64_t steps) {
  if (std::ssize(memory) != phase_.memory.bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("state: expected ", phase_.memory.bytes(), " bytes, found ", memory.size()));
  }
  Tensors state = AllStored();
  phase_.memory.Read(memory, state);
  for (auto& [number, stage] : stages_) {
    Tensors of_stage;
    for (const auto& [name, values] : stage.parameters().all_stored()) {
      of_stage[name] = std::move(state.find(name)->second);
    }
    stage.SetState(std::move(of_stage), steps);
  }
  return absl::OkStatus();
}

absl::Status GridProcess::SetState(const training::CheckpointFiles& checkpoint) {
  for (auto& [number, stage] : stages_) {
    ASSIGN_OR_RETURN(Tensors of_stage, ReadState(checkpoint, stage.role()));
    stage.SetState(std::move(of_stage), checkpoint.steps());
  }
  return absl::OkStatus();
}

Tensors GridProcess::AllStored() const {
  Tensors all;
  for (const auto& [number, stage] : stages_) {
    const Tensors& stored = stage.parameters().all_stored();
    all.insert(stored.begin(), stored.end());
  }
  return all;
}

std::vector<std::byte> GridProcess::State() const {
  std::vector<std::byte> memory(phase_.memory.bytes());
  phase_.memory.Write(AllStored(), memory);
  return memory;
}

absl::Status GridProcess::Run(PipelineLoop& loop) {
  if (checkpoints_.has_value() && checkpoints_->NewestBefore(kCheckpointStage, INT64_MAX) < 0) {
    RETURN_IF_ERROR(WriteCheckpoint(-1));
  }
  bool is_first_op = true;
  for (;;) {
    const PipelineStep step = loop.Next();
    switch (step.kind) {
      case PipelineStep::Kind::kOp:
        // What an iteration left that was cut short is of no use, also if a run that begins anew
        // gives the next one the same number.
        if (is_first_op || pending_ != step.op->iteration) {
          for (auto& [number, stage] : stages_) stage.DropStep();
        }
        is_first_op = false;
        pending_ = step.op->iteration;
        loop.Answer(Compute(*step.op));
        break;
      case PipelineStep::Kind::kPair:
        loop.Fail(absl::InvalidArgumentError("expected an op of a grid's program, found a pair"));
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

absl::Status GridProcess::WriteCheckpoint(int64_t iteration) const {
  std::vector<training::CheckpointBox> boxes;
  for (const auto& [number, stage] : stages_) {
    const std::vector<training::CheckpointBox> of_stage =
        CheckpointBoxesOf(stage.role(), stage.parameters().all_stored());
    boxes.insert(boxes.end(), of_stage.begin(), of_stage.end());
  }
  return checkpoints_->Write(kCheckpointStage, iteration, steps(), boxes);
}

absl::Status GridProcess::Complete(int64_t iteration) {
  const int64_t step = steps();
  double loss = 0;
  for (auto& [number, stage] : stages_) loss += stage.ApplyStep();
  options_.on_step(step, loss);
  return checkpoints_.has_value() ? WriteCheckpoint(iteration) : absl::OkStatus();
}

// Which process was replaced is not known, only its rank, and it may have been killed before it had
// written the last checkpoint. But it took part in the last complete iteration, so it had written
// the one before; and so had all others.
absl::Status GridProcess::GoBack(const PipelineStep& step) {
  if (!checkpoints_.has_value()) {
    return absl::FailedPreconditionError("expected checkpoints to go back to, found none");
  }
  const int64_t chosen = checkpoints_->NewestBefore(kCheckpointStage, step.iteration);
  ASSIGN_OR_RETURN(const training::CheckpointFiles checkpoint,
                   checkpoints_->Open(kCheckpointStage, chosen));
  RETURN_IF_ERROR(SetState(checkpoint));
  pending_ = std::nullopt;
  checkpoints_->GoBackTo(kCheckpointStage, chosen);
  return absl::OkStatus();
}

absl::Status GridProcess::Compute(const PipelineOp& op) {
  options_.on_op(steps(), op.name);
  ASSIGN_OR_RETURN(const GridOp parsed, ParseGridOp(op.name));
  for (const std::vector<PipelineTensor>* const tensors : {&op.inputs, &op.outputs}) {
    for (const PipelineTensor& tensor : *tensors) {
      if (tensor.type == DataType::kF32) continue;
      return absl::InvalidArgumentError(absl::StrCat(op.name, ": message ", tensor.transfer,
                                                     ": expected F32, found ",
                                                     DataTypeName(tensor.type)));
    }
  }
  std::vector<MessageTile> outputs = TilesOf(op.outputs);
  // Of copies only one may be sent; the others have no memory for it.
  std::vector<std::vector<std::byte>> unsent;
  const auto given = phase_.outputs.find(op.name);
  if (given != phase_.outputs.end()) {
    for (const PhaseOfDevice::Output& output : given->second) {
      if (std::ranges::find(outputs, output.transfer, &MessageTile::transfer) != outputs.end()) {
        continue;
      }
      outputs.push_back({.transfer = output.transfer, .bytes = unsent.emplace_back(output.bytes)});
    }
  }
  const auto stage = stages_.find(parsed.stage.value_or(stages_.begin()->first));
  if (stage == stages_.end() || parsed.stage.has_value() != (stages_.size() > 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(op.name, ": expected an op of a stage of this rank, found one of none"));
  }
  return stage->second.Compute(parsed, TilesOf(op.inputs), outputs);
}

std::vector<MessageTile> GridProcess::TilesOf(const std::vector<PipelineTensor>& tensors) const {
  std::vector<MessageTile> tiles;
  for (const PipelineTensor& tensor : tensors) {
    for (const PipelineTensor::Tile& tile : tensor.tiles) {
      if (tile.device == phase_.device) {
        tiles.push_back({.transfer = tensor.transfer, .bytes = tile.bytes});
      }
    }
  }
  return tiles;
}

}  // namespace crossmesh::grid_training
