#include "examples/tensor_parallel_training/testing/program_walk.h"

#include "common/base/check.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "examples/tensor_parallel_training/testing/carried_tensor.h"
#include "planner/parallelism/programs/grid_op.h"
#include "planner/parallelism/programs/stage_schedule.h"

#include <cmath>
#include <limits>

#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {

absl::StatusOr<ProgramWalk> ProgramWalk::Create(const GridProgramRequest& request,
                                                const Optimizer& optimizer) {
  ASSIGN_OR_RETURN(LayerProgram program, MakeGridProgram(request));
  return ProgramWalk(std::move(program), request, optimizer);
}

ProgramWalk::ProgramWalk(LayerProgram program, const GridProgramRequest& request,
                         const Optimizer& optimizer)
    : program_(std::move(program)),
      ends_(program_.ops.size()),
      ranks_(program_.ranks.size()),
      stages_(request.stages.size()) {
  for (size_t i = 0; i < program_.transfers.size(); ++i) {
    const LayerProgram::Transfer& transfer = program_.transfers[i];
    for (size_t message = 0; message < transfer.messages.size(); ++message) {
      ends_[transfer.messages[message].producer].outputs.push_back({i, message});
      ends_[transfer.messages[message].consumer].inputs.push_back({i, message});
    }
    Traffic& traffic = traffic_.emplace_back();
    const LayerProgram::Tensor& tensor = transfer.tensors.front();
    for (const Tile& tile :
         tensor.source.Tiles(*program_.ranks[program_.from(transfer)].mesh, tensor.tensor.shape)) {
      traffic.tile_bytes.push_back(Volume(tile) * sizeof(float));
    }
  }
  for (size_t op = 0; op < program_.ops.size(); ++op) {
    ranks_[program_.ops[op].rank].ops.push_back(op);
  }
  Tensors whole;
  const std::vector<std::vector<StageIndex>> stages_of =
      StagesOfRanks(request.schedule, stages_.size());
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].first_stage = stages_of[rank].front();
  }
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    for (int64_t slot = 0; slot < request.stages[stage].mesh->slots(); ++slot) {
      DeviceRole role = RoleOf(request, optimizer, stage, slot);
      if (whole.empty()) whole = InitialState(role.settings);
      stages_[stage].devices.push_back(std::make_unique<GridDevice>(std::move(role), whole));
    }
  }
}

bool ProgramWalk::IsReady(size_t op) const {
  for (const End& input : ends_[op].inputs) {
    if (traffic_[input.transfer].arrived.size() <= input.message) return false;
  }
  for (const End& output : ends_[op].outputs) {
    const auto held = static_cast<int64_t>(output.message - traffic_[output.transfer].taken);
    if (held >= program_.transfers[output.transfer].buffers) return false;
  }
  return true;
}

absl::Status ProgramWalk::Do(size_t op) {
  ASSIGN_OR_RETURN(const GridOp parsed, ParseGridOp(program_.ops[op].name));
  const size_t first = ranks_[program_.ops[op].rank].first_stage;
  const Stage& stage = stages_[parsed.stage.has_value() ? *parsed.stage : first];
  std::vector<std::vector<Bytes>> given(ends_[op].outputs.size());  // by output and slot
  for (size_t slot = 0; slot < stage.devices.size(); ++slot) {
    std::vector<MessageTile> inputs;
    for (const End& end : ends_[op].inputs) {
      inputs.push_back({.transfer = program_.transfers[end.transfer].name,
                        .bytes = traffic_[end.transfer].arrived[end.message][slot]});
    }
    std::vector<MessageTile> outputs;
    for (size_t output = 0; output < given.size(); ++output) {
      const size_t transfer = ends_[op].outputs[output].transfer;
      Bytes& bytes = given[output].emplace_back(traffic_[transfer].tile_bytes[slot]);
      outputs.push_back({.transfer = program_.transfers[transfer].name, .bytes = bytes});
    }
    RETURN_IF_ERROR(stage.devices[slot]->Compute(parsed, inputs, outputs));
  }
  for (const End& end : ends_[op].inputs) {
    traffic_[end.transfer].arrived[end.message].clear();
    ++traffic_[end.transfer].taken;
  }
  for (size_t output = 0; output < given.size(); ++output) {
    RETURN_IF_ERROR(Carry(ends_[op].outputs[output].transfer, std::move(given[output])));
  }
  return absl::OkStatus();
}

absl::Status ProgramWalk::Carry(size_t transfer, std::vector<Bytes> given) {
  const LayerProgram::Transfer& said = program_.transfers[transfer];
  absl::StatusOr<std::vector<Bytes>> arrived =
      At(said.name,
         planned_ == nullptr
             ? CarryTensor(program_, said, given)
             : CarryByPlan(program_, said, *planned_->transfers[transfer].plan, std::move(given)));
  if (!arrived.ok()) return arrived.status();
  traffic_[transfer].arrived.push_back(*std::move(arrived));
  return absl::OkStatus();
}

absl::StatusOr<double> ProgramWalk::Step() {
  for (Traffic& traffic : traffic_) {
    traffic.arrived.clear();
    traffic.taken = 0;
  }
  for (Rank& rank : ranks_) rank.next = 0;
  for (size_t done = 0; done < program_.ops.size();) {
    const size_t before = done;
    for (Rank& rank : ranks_) {
      for (; rank.next < rank.ops.size() && IsReady(rank.ops[rank.next]); ++done) {
        RETURN_IF_ERROR(Do(rank.ops[rank.next++]));
      }
    }
    if (done == before) return absl::InternalError("expected an op that can be done, found none");
  }
  double loss = 0;
  for (const Stage& stage : stages_) {
    for (const auto& device : stage.devices) loss += device->ApplyStep();
  }
  return loss;
}

absl::StatusOr<Matrix> ProgramWalk::PutTogether(const Stage& stage, const Parameter& parameter,
                                                Part part) {
  Matrix whole =
      Matrix::Constant(parameter.rows, parameter.columns, std::numeric_limits<float>::quiet_NaN());
  bool differs = false;
  for (const auto& device : stage.devices) {
    const Tensors& tensors = (device->parameters().*part)();
    const auto found = tensors.find(parameter.name);
    if (found == tensors.end()) {
      return absl::FailedPreconditionError("expected a step that is done, found none");
    }
    const float* stored = found->second.data();
    VisitStored(device->role(), parameter, [&](int64_t element, int64_t row, int64_t column) {
      float& value = whole(row, column);
      differs = differs || (!std::isnan(value) && value != stored[element]);
      value = stored[element];
    });
  }
  if (differs) return absl::InternalError("expected copies that are the same, found others");
  if (whole.hasNaN()) return absl::InternalError("expected all of it, found a part missing");
  return whole;
}

absl::StatusOr<Tensors> ProgramWalk::Whole(Parts parts, Part part) const {
  Tensors whole;
  for (const Stage& stage : stages_) {
    const DeviceRole& any = stage.devices.front()->role();
    for (const Parameter& parameter : parts(any.settings, any.stage)) {
      ASSIGN_OR_RETURN(whole[parameter.name],
                       At(parameter.name, PutTogether(stage, parameter, part)));
    }
  }
  return whole;
}

absl::StatusOr<Tensors> ProgramWalk::Parameters() const {
  return Whole(&ParametersOf, &DeviceParameters::all_stored);
}

absl::StatusOr<Tensors> ProgramWalk::Gradients() const {
  return Whole(&ParametersOf, &DeviceParameters::last_gradients);
}

absl::StatusOr<Tensors> ProgramWalk::State() const {
  return Whole(&StateOf, &DeviceParameters::all_stored);
}

void ProgramWalk::SetState(const Tensors& whole, int64_t steps) {
  for (const Stage& stage : stages_) {
    for (const auto& device : stage.devices) {
      Tensors stored;
      for (const Parameter& part : StateOf(device->role().settings, device->role().stage)) {
        stored[part.name] = CutParameter(device->role(), part, whole.find(part.name)->second);
      }
      device->SetState(std::move(stored), steps);
    }
  }
}

}  // namespace crossmesh::grid_training
