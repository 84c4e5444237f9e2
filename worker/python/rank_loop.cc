#include "worker/python/rank_loop.h"

#include "common/mesh/data_type.h"
#include "common/mesh/device.h"
#include "common/python/raised_status.h"
#include "planner/pipeline/op.h"

#include <cstdint>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace crossmesh {
namespace nb = nanobind;
namespace {

using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

nb::object BytesOf(const PipelineTensor::Tile& tile, nb::handle self) {
  const size_t size = tile.bytes.size();
  return nb::cast(Bytes(tile.bytes.data(), {size}, size == 0 ? nb::none() : nb::borrow(self)),
                  nb::rv_policy::reference);
}

nb::tuple BoxToPython(const Box& box) {
  nb::list slices;
  for (const Interval& interval : box.intervals()) {
    slices.append(nb::slice(nb::int_(interval.begin), nb::int_(interval.end), nb::none()));
  }
  return nb::tuple(slices);
}

nb::tuple TensorToPython(const PipelineTensor& tensor, nb::handle self) {
  nb::list tiles;
  for (const PipelineTensor::Tile& tile : tensor.tiles) {
    nb::list boxes;
    for (const Box& box : tile.boxes) boxes.append(BoxToPython(box));
    tiles.append(nb::make_tuple(ToString(tile.device), nb::tuple(boxes), BytesOf(tile, self)));
  }
  return nb::make_tuple(tensor.name, tensor.other_stage, tensor.transfer,
                        std::string(DataTypeName(tensor.type)), nb::tuple(nb::cast(tensor.shape)),
                        tiles);
}

nb::list TensorsToPython(const std::vector<PipelineTensor>& tensors, nb::handle self) {
  nb::list list;
  for (const PipelineTensor& tensor : tensors) list.append(TensorToPython(tensor, self));
  return list;
}

const char* KindOf(const PipelineOp& op) {
  // Those of a layer program have names of their own.
  if (op.name != ToString(op.op)) return "op";
  switch (op.op.kind) {
    case OpKind::kForward:
      return "forward";
    case OpKind::kBackward:
      return "backward";
    case OpKind::kInputGradient:
      return "input_gradient";
    case OpKind::kWeightGradient:
      return "weight_gradient";
  }
  return "";
}

nb::object OpToPython(const PipelineOp* op, nb::handle self) {
  if (op == nullptr) return nb::none();
  return nb::make_tuple(op->name, KindOf(*op), op->op.stage, op->op.microbatch, op->samples,
                        op->seconds, op->iteration, op->place, TensorsToPython(op->inputs, self),
                        TensorsToPython(op->outputs, self));
}

const char* KindOf(const PipelineStep& step) {
  switch (step.kind) {
    case PipelineStep::Kind::kOp:
      return "op";
    case PipelineStep::Kind::kPair:
      return "pair";
    case PipelineStep::Kind::kComplete:
      return "complete";
    case PipelineStep::Kind::kStateLost:
      return "state_lost";
    case PipelineStep::Kind::kOver:
      return "over";
  }
  return "";
}

}  // namespace

RankLoop::~RankLoop() {
  // In a process that was forked off a thread that is not there may have the loop's lock.
  if (!worker_->IsOfThisProcess()) static_cast<void>(loop_.release());
}

absl::Status RankLoop::CheckNext() const {
  const std::string what = absl::StrCat("rank ", loop_->rank(), " of worker ", worker_->name());
  if (left_) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": expected a process that goes on, found that it has left"));
  }
  if (waits_) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": expected one thread, found that another one waits for its next op"));
  }
  if (!unanswered_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      what, ": expected that the last op is done or has failed, found that it has no answer"));
}

const PipelineStep& RankLoop::Next() {
  worker_->CheckProcess();
  OrRaise(CheckNext());
  {
    waits_ = true;
    const absl::Cleanup waited = [this] { waits_ = false; };
    worker_->Await(std::nullopt,
                   [this](absl::Duration timeout) { return loop_->WaitForNext(timeout); });
  }
  step_ = loop_->Next();  // at once
  unanswered_ = step_.kind == PipelineStep::Kind::kOp || step_.kind == PipelineStep::Kind::kPair ||
                step_.kind == PipelineStep::Kind::kStateLost;
  return step_;
}

void RankLoop::Answer(const absl::Status& status) {
  worker_->CheckProcess();
  if (!std::exchange(unanswered_, false)) {
    RaiseStatus(absl::FailedPreconditionError(
        absl::StrCat("rank ", loop_->rank(), " of worker ", worker_->name(),
                     ": expected a step that has no answer, found that it was answered")));
  }
  loop_->Answer(status);
}

void RankLoop::Leave() {
  if (!worker_->IsOfThisProcess()) return;
  left_ = true;
  unanswered_ = false;
  loop_->Leave();
}

nb::tuple StepToPython(const PipelineStep& step, nb::handle self) {
  return nb::make_tuple(KindOf(step), OpToPython(step.op, self), OpToPython(step.backward, self),
                        step.iteration, nb::tuple(nb::cast(step.lost_ranks)));
}

}  // namespace crossmesh
