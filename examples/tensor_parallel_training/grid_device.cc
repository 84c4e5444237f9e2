#include "examples/tensor_parallel_training/grid_device.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {
namespace {

PassId PassIdOf(const GridOp& op) {
  return {.microbatch = op.microbatch.value_or(-1), .half = op.half};
}

absl::string_view VectorsName(GridAxis axis) {
  return axis == GridAxis::kC ? "vectors_of_c" : "vectors_of_r";
}

constexpr GridAxis kVectorAxes[] = {GridAxis::kC, GridAxis::kR};

bool IsOfDiagonal(GridOpKind kind) {
  return kind == GridOpKind::kSpreadVectors || kind == GridOpKind::kTakeVectors ||
         kind == GridOpKind::kReduceVectors;
}

bool IsOfStep(GridOpKind kind) {
  return kind == GridOpKind::kData || kind == GridOpKind::kUpdate || kind == GridOpKind::kVectors ||
         kind == GridOpKind::kUpdateVectors || IsOfDiagonal(kind);
}

// Of weights, whichever half of a microbatch needs them.
bool IsOfWeights(GridOpKind kind) {
  return kind == GridOpKind::kGive || kind == GridOpKind::kGiveBack ||
         kind == GridOpKind::kWeightGradient || kind == GridOpKind::kTake;
}

// Has a stage with these ends such ops?
bool HasOp(const StageLayers& stage, GridOpKind kind) {
  switch (kind) {
    case GridOpKind::kEmbed:
    case GridOpKind::kEmbedGradient:
      return stage.is_first;
    case GridOpKind::kArrive:
    case GridOpKind::kLeaveBack:
      return !stage.is_first;
    case GridOpKind::kLoss:
    case GridOpKind::kLossSum:
    case GridOpKind::kBackward:
      return stage.is_last;
    case GridOpKind::kLeave:
    case GridOpKind::kArriveBack:
      return !stage.is_last;
    case GridOpKind::kNorm:
    case GridOpKind::kInput:
    case GridOpKind::kGive:
    case GridOpKind::kForward:
    case GridOpKind::kOutputGradient:
    case GridOpKind::kGiveBack:
    case GridOpKind::kInputGradient:
    case GridOpKind::kWaitGradient:
    case GridOpKind::kWeightGradient:
    case GridOpKind::kTake:
    case GridOpKind::kNormGradient:
    case GridOpKind::kData:
    case GridOpKind::kUpdate:
    case GridOpKind::kVectors:
    case GridOpKind::kUpdateVectors:
    case GridOpKind::kSpreadVectors:
    case GridOpKind::kTakeVectors:
    case GridOpKind::kReduceVectors:
      return true;
  }
  return false;
}

// Of the residual stream, from another stage or to it; with a matrix, to its grid or back.
bool IsOfStream(GridOpKind kind) {
  return kind == GridOpKind::kArrive || kind == GridOpKind::kLeave ||
         kind == GridOpKind::kArriveBack || kind == GridOpKind::kLeaveBack;
}

bool HasMatrix(GridOpKind kind) {
  return IsOfWeights(kind) || kind == GridOpKind::kNorm || kind == GridOpKind::kInput ||
         kind == GridOpKind::kForward || kind == GridOpKind::kOutputGradient ||
         kind == GridOpKind::kInputGradient || kind == GridOpKind::kWaitGradient ||
         kind == GridOpKind::kNormGradient || kind == GridOpKind::kData ||
         kind == GridOpKind::kUpdate;
}

}  // namespace

GridDevice::GridDevice(DeviceRole role, const Tensors& whole)
    : role_(std::move(role)),
      uses_(UsesOf(role_)),
      samples_(SamplesOf(role_.settings)),
      parameters_(role_, whole) {}

absl::Status GridDevice::Compute(const GridOp& op, std::span<const MessageTile> inputs,
                                 std::span<const MessageTile> outputs) {
  OpMessages messages(inputs, outputs);
  const absl::StatusOr<Object> object = Find(op);
  absl::Status status = object.status();
  if (status.ok()) status = ComputeWith(op, *object, messages);
  if (status.ok()) status = messages.CheckAllUsed();
  return At(ToString(op), status);
}

std::string GridDevice::NameOf(const MatrixUse& use, absl::string_view what) const {
  return absl::StrCat(role_.OnPart(use.part).prefix, use.matrix.name, ".", what);
}

absl::StatusOr<GridDevice::Object> GridDevice::Find(const GridOp& op) {
  absl::Status none =
      absl::InvalidArgumentError("expected an op of this stage's step, found one of none");
  Object object;
  const bool is_joint = IsOfStream(op.kind) && !op.matrix.empty();
  if ((!is_joint && !HasOp(role_.stage, op.kind)) ||
      (IsOfDiagonal(op.kind) && role_.vectors == VectorForm::kReplicated) ||
      (!is_joint && op.matrix.empty() == HasMatrix(op.kind)) ||
      op.microbatch.has_value() == IsOfStep(op.kind) ||
      op.microbatch.value_or(0) >= role_.microbatches) {
    return none;
  }
  if (op.kind == GridOpKind::kLeave || op.kind == GridOpKind::kArriveBack) {
    object.place = uses_.size();
  }
  if (!op.matrix.empty()) {
    const auto use = std::ranges::find(uses_, MatrixKey(op.layer, op.matrix), &MatrixUse::key);
    if (use == uses_.end() || (is_joint && !use->is_joint)) return none;
    object.place = use - uses_.begin();
  }
  const bool is_whole = role_.halves == 1 || IsOfStep(op.kind) || IsOfWeights(op.kind);
  if ((op.half < 0) != is_whole) return none;
  if (IsOfStep(op.kind) || IsOfWeights(op.kind)) return object;
  const PassId id = PassIdOf(op);
  if (op.kind == GridOpKind::kEmbed || (op.kind == GridOpKind::kArrive && !is_joint)) {
    passes_[id] =
        std::make_unique<DevicePass>(DevicePass::Shared{role_, uses_, samples_, parameters_}, id);
  }
  const auto pass = passes_.find(id);
  if (pass == passes_.end()) {
    return absl::FailedPreconditionError("expected a pass that has begun, found none");
  }
  object.pass = pass->second.get();
  return object;
}

absl::Status GridDevice::ComputeWith(const GridOp& op, const Object& object, OpMessages& messages) {
  const auto& [place, pass] = object;
  // What has none does not look at it.
  const MatrixUse& use = uses_[std::min(place, uses_.size() - 1)];
  switch (op.kind) {
    case GridOpKind::kEmbed:
      return pass->Embed();
    case GridOpKind::kArrive:
      return pass->Arrive(place, messages);
    case GridOpKind::kNorm:
      return pass->Norm(place, messages);
    case GridOpKind::kInput:
      return pass->Input(place, messages);
    case GridOpKind::kGive:
      return messages.Write(NameOf(use, "gather"), parameters_.stored(use.key));
    case GridOpKind::kForward:
    case GridOpKind::kInputGradient:
      return Product(op, object, messages);
    case GridOpKind::kLeave:
      return pass->Leave(place, messages);
    case GridOpKind::kLoss:
      return pass->Loss(messages);
    case GridOpKind::kLossSum:
      return pass->LossSum(messages);
    case GridOpKind::kBackward:
      RETURN_IF_ERROR(pass->Backward(messages));
      return AddLoss(*pass);
    case GridOpKind::kArriveBack:
      return pass->ArriveBack(place, messages);
    case GridOpKind::kOutputGradient:
      return pass->OutputGradient(place, messages);
    case GridOpKind::kGiveBack:
      return messages.Write(NameOf(use, "backward_gather"), parameters_.stored(use.key));
    case GridOpKind::kWaitGradient:
      return pass->WaitGradient(place, messages);
    case GridOpKind::kWeightGradient:
      return WeightGradient(op, place, messages);
    case GridOpKind::kTake:
      return Take(use, messages);
    case GridOpKind::kNormGradient:
      return pass->NormGradient(place, messages);
    case GridOpKind::kLeaveBack:
      RETURN_IF_ERROR(pass->LeaveBack(place, messages));
      return op.matrix.empty() ? EndPass(op) : absl::OkStatus();
    case GridOpKind::kEmbedGradient:
      RETURN_IF_ERROR(pass->EmbedGradient(messages));
      return EndPass(op);
    case GridOpKind::kData:
      return GiveGradient(use, messages);
    case GridOpKind::kUpdate:
      return Update(use, messages);
    case GridOpKind::kSpreadVectors:
    case GridOpKind::kTakeVectors:
    case GridOpKind::kVectors:
    case GridOpKind::kReduceVectors:
    case GridOpKind::kUpdateVectors:
      return ComputeVectors(op.kind, messages);
  }
  return absl::OkStatus();
}

absl::Status GridDevice::ComputeVectors(GridOpKind kind, OpMessages& messages) {
  if (kind == GridOpKind::kSpreadVectors) return SpreadVectors(messages);
  if (kind == GridOpKind::kTakeVectors) return TakeVectors(messages);
  if (kind == GridOpKind::kVectors) return GiveVectors(messages);
  if (kind == GridOpKind::kReduceVectors) return ReduceVectors(messages);
  return UpdateVectors(messages);
}

absl::Status GridDevice::Product(const GridOp& op, const Object& object, OpMessages& messages) {
  const MatrixUse& use = uses_[object.place];
  const bool is_forward = op.kind == GridOpKind::kForward;
  const std::string gather = NameOf(use, is_forward ? "gather" : "backward_gather");
  if (messages.Brings(gather)) {
    ASSIGN_OR_RETURN(Matrix elements, messages.Read(gather, 1, parameters_.BlockElements(use)));
    parameters_.KeepGathered(use, std::move(elements));
  }
  RETURN_IF_ERROR(is_forward ? object.pass->Forward(object.place, messages)
                             : object.pass->InputGradient(object.place, messages));
  // The other half needs them as well.
  if (op.half != 0 && !use.is_kept) parameters_.DropGathered(use);
  return absl::OkStatus();
}

absl::Status GridDevice::WeightGradient(const GridOp& op, size_t place, OpMessages& messages) {
  const MatrixUse& use = uses_[place];
  Matrix sum;
  for (const auto& [id, pass] : passes_) {
    if (id.microbatch != *op.microbatch) continue;
    const DevicePass::Kept& kept = pass->kept(place);
    const Matrix gradient = kept.input.transpose() * kept.output_gradient;
    sum = sum.size() == 0 ? gradient : Matrix(sum + gradient);
  }
  const Matrix elements = Eigen::Map<const Matrix>(sum.data(), 1, sum.size());
  const std::string scatter = NameOf(use, "scatter");
  if (messages.Takes(scatter)) return messages.Write(scatter, elements);
  if (elements.size() != parameters_.stored(use.key).size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("expected a message ", scatter, " of a matrix that z cuts, found none"));
  }
  parameters_.AddGradient(use.key, elements);
  return absl::OkStatus();
}

absl::Status GridDevice::Take(const MatrixUse& use, OpMessages& messages) {
  ASSIGN_OR_RETURN(const Matrix gradient,
                   messages.Read(NameOf(use, "scatter"), 1, parameters_.stored(use.key).size()));
  parameters_.AddGradient(use.key, gradient);
  return absl::OkStatus();
}

absl::Status GridDevice::GiveGradient(const MatrixUse& use, OpMessages& messages) {
  const std::string sum = NameOf(use, "data_sum");
  if (!messages.Takes(sum)) return absl::OkStatus();
  return messages.Write(sum, parameters_.gradient(use.key));
}

absl::Status GridDevice::Update(const MatrixUse& use, OpMessages& messages) {
  Matrix gradient = parameters_.gradient(use.key);
  const std::string sum = NameOf(use, "data_sum");
  if (messages.Brings(sum)) {
    ASSIGN_OR_RETURN(gradient, messages.Read(sum, 1, gradient.size()));
  }
  parameters_.SetMatrixGradient(use, gradient);
  return absl::OkStatus();
}

absl::Status GridDevice::SpreadVectors(OpMessages& messages) {
  for (const GridAxis axis : kVectorAxes) {
    const std::string spread = absl::StrCat(VectorsName(axis), ".spread");
    if (!messages.Takes(spread)) continue;
    RETURN_IF_ERROR(messages.Write(spread, parameters_.DiagonalVectors(axis)));
  }
  return absl::OkStatus();
}

absl::Status GridDevice::TakeVectors(OpMessages& messages) {
  for (const GridAxis axis : kVectorAxes) {
    const std::string spread = absl::StrCat(VectorsName(axis), ".spread");
    Matrix all = parameters_.DiagonalVectors(axis);
    const int64_t elements = parameters_.DiagonalElements(axis);
    if (messages.Brings(spread)) {
      ASSIGN_OR_RETURN(all, messages.Read(spread, 1, elements));
    }
    if (all.size() != elements) {
      return absl::FailedPreconditionError(
          absl::StrCat("expected a message ", spread, " of ", elements, " elements, found none"));
    }
    parameters_.SpreadVectors(axis, all);
  }
  return absl::OkStatus();
}

absl::Status GridDevice::GiveVectors(OpMessages& messages) {
  for (const GridAxis axis : kVectorAxes) {
    for (size_t grid = 0; grid < role_.grids.size(); ++grid) {
      const std::string sum = absl::StrCat(role_.grids[grid].prefix, VectorsName(axis));
      if (!messages.Takes(sum)) continue;
      RETURN_IF_ERROR(messages.Write(sum, parameters_.VectorGradients({axis, grid})));
    }
    const std::string scatter = absl::StrCat(VectorsName(axis), ".scatter");
    scattered_[axis] = parameters_.DiagonalGradients(axis);
    if (messages.Takes(scatter)) RETURN_IF_ERROR(messages.Write(scatter, scattered_[axis]));
  }
  return absl::OkStatus();
}

absl::Status GridDevice::ReduceVectors(OpMessages& messages) {
  for (const GridAxis axis : kVectorAxes) {
    const std::string scatter = absl::StrCat(VectorsName(axis), ".scatter");
    if (messages.Brings(scatter)) {
      const int64_t part = parameters_.DiagonalElements(axis) / role_.grids.front().grid.z();
      ASSIGN_OR_RETURN(scattered_[axis], messages.Read(scatter, 1, part));
    }
    const std::string reduce = absl::StrCat(VectorsName(axis), ".reduce");
    if (messages.Takes(reduce)) RETURN_IF_ERROR(messages.Write(reduce, scattered_[axis]));
  }
  return absl::OkStatus();
}

absl::Status GridDevice::UpdateDiagonal(GridAxis axis, OpMessages& messages) {
  const Eigen::Index elements = parameters_.DiagonalVectors(axis).size();
  const std::string reduce = absl::StrCat(VectorsName(axis), ".reduce");
  Matrix sum = elements > 0 ? scattered_[axis] : Matrix(1, 0);
  if (messages.Brings(reduce)) {
    const GridAxis other = axis == GridAxis::kC ? GridAxis::kR : GridAxis::kC;
    ASSIGN_OR_RETURN(const Matrix summands,
                     messages.Read(reduce, role_.grids.front().grid[other], elements));
    sum = summands.row(0);
    for (Eigen::Index next = 1; next < summands.rows(); ++next) sum += summands.row(next);
  }
  if (sum.size() != elements) {
    return absl::FailedPreconditionError(
        absl::StrCat("expected a message ", reduce, " of ", elements, " sums, found none"));
  }
  parameters_.SetDiagonalGradients(axis, sum);
  return absl::OkStatus();
}

absl::Status GridDevice::UpdateVectors(OpMessages& messages) {
  for (const GridAxis axis : kVectorAxes) {
    RETURN_IF_ERROR(UpdateDiagonal(axis, messages));
    for (size_t grid = 0; grid < role_.grids.size(); ++grid) {
      const std::string name = absl::StrCat(role_.grids[grid].prefix, VectorsName(axis));
      if (!messages.Brings(name)) continue;
      const Eigen::Index elements = parameters_.VectorGradients({axis, grid}).size();
      ASSIGN_OR_RETURN(const Matrix sum, messages.Read(name, 1, elements));
      parameters_.SetVectorGradients({axis, grid}, sum);
    }
  }
  parameters_.SetVectorsDone();
  return absl::OkStatus();
}

absl::Status GridDevice::AddLoss(const DevicePass& pass) {
  const bool is_scattered = role_.form == ActivationForm::kScattered;
  const PerAxis<int64_t>& place = role_.OnPart(uses_.back().part).place;
  const bool is_copy = place[GridAxis::kR] > 0 || (!is_scattered && place[GridAxis::kC] > 0);
  if (!is_copy) loss_ += pass.loss();
  return absl::OkStatus();
}

absl::Status GridDevice::EndPass(const GridOp& op) {
  passes_.erase(PassIdOf(op));
  return absl::OkStatus();
}

void GridDevice::DropStep() {
  passes_.clear();
  parameters_.DropStep();
  loss_ = 0;
}

void GridDevice::SetState(Tensors stored, int64_t steps) {
  DropStep();
  parameters_.SetState(std::move(stored), steps);
}

double GridDevice::ApplyStep() {
  parameters_.ApplyStep();
  return std::exchange(loss_, 0) / static_cast<double>(role_.settings.tokens());
}

}  // namespace crossmesh::grid_training
