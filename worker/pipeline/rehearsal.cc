#include "worker/pipeline/rehearsal.h"

#include "common/base/deadline.h"
#include "common/base/status_macros.h"
#include "worker/pipeline/rehearsed_tensor.h"
#include "worker/pipeline/transfer_memory.h"

#include <cstdint>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

// The tensors of a program's messages, as both ends have them.
class RehearsedProgram {
 public:
  RehearsedProgram(const WorkerProgram& program, const WorkerProgram::Rank& rank) : rank_(rank) {
    for (const WorkerProgram::Transfer& transfer : program.transfers) {
      std::vector<RehearsedTensor>& tensors = tensors_.emplace_back();
      for (int32_t tensor = 0; tensor < std::ssize(transfer.tensors); ++tensor) {
        tensors.emplace_back(transfer, tensor);
      }
    }
  }

  absl::Status Check(const PipelineOp& op) const {
    auto input = op.inputs.begin();
    for (const TransferMessage& message : rank_.ops[op.place].inputs) {
      for (const RehearsedTensor& tensor : tensors_[message.transfer]) {
        RETURN_IF_ERROR(Check(op, message, tensor, *input++));
      }
    }
    return absl::OkStatus();
  }

  void Fill(const PipelineOp& op) const {
    auto output = op.outputs.begin();
    for (const TransferMessage& message : rank_.ops[op.place].outputs) {
      for (const RehearsedTensor& tensor : tensors_[message.transfer]) {
        for (const PipelineTensor::Tile& tile : (output++)->tiles) {
          tensor.Fill(op.iteration, message.index, tile.bytes);
        }
      }
    }
  }

 private:
  static absl::Status Check(const PipelineOp& op, const TransferMessage& message,
                            const RehearsedTensor& tensor, const PipelineTensor& input) {
    for (const PipelineTensor::Tile& tile : input.tiles) {
      if (tensor.Fits(op.iteration, message.index, tile.bytes)) continue;
      return absl::DataLossError(absl::StrCat("tensor ", input.name, " of ", input.transfer,
                                              " at device ", ToString(tile.device),
                                              ": expected what the rehearsal gives, found other "
                                              "bytes"));
    }
    return absl::OkStatus();
  }

  const WorkerProgram::Rank& rank_;
  std::vector<std::vector<RehearsedTensor>> tensors_;  // [transfer][tensor]
};

}  // namespace

void Rehearse(RankQueue& queue) {
  const RehearsedProgram rehearsed(*queue.memory().program, queue.program_rank());
  for (;;) {
    const PipelineStep step = queue.Next();
    if (step.kind == PipelineStep::Kind::kOver) return;
    if (step.kind == PipelineStep::Kind::kComplete) continue;
    if (step.kind == PipelineStep::Kind::kStateLost) {
      queue.Done();  // it has none
      continue;
    }
    const Deadline deadline(absl::Seconds(step.op->seconds));
    absl::Status found = rehearsed.Check(*step.op);
    if (step.backward != nullptr) found.Update(rehearsed.Check(*step.backward));
    if (!found.ok()) {
      queue.Fail(found);
      continue;
    }
    rehearsed.Fill(*step.op);
    if (step.backward != nullptr) rehearsed.Fill(*step.backward);
    // The rest of the time that the op takes, unless the run ends before.
    queue.WaitForEnd(deadline.left());
    queue.Done();
  }
}

}  // namespace crossmesh
