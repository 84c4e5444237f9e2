#include "planner/pipeline/pipeline_proof.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/op_table.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status ProveSequences(const OpTable& ops) {
  const int32_t parts = ops.profile().sequence_parts;
  const auto check = [&](absl::string_view what, OpIndex first, OpIndex then) {
    if (first < then) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", ops.rank_of(then), ": expected ", ToString(ops.op(first)), " before ",
                     ToString(ops.op(then)), ", since ", what, ", found it after that"));
  };
  for (StageIndex s = 0; s < std::ssize(ops.profile().stages); ++s) {
    for (MicrobatchIndex m = 0; m < ops.schedule().microbatches; ++m) {
      if (m % parts == 0) continue;  // the first of a sequence
      RETURN_IF_ERROR(check("the parts of a sequence go forward in order", ops.Forward(s, m - 1),
                            ops.Forward(s, m)));
      RETURN_IF_ERROR(check("the parts of a sequence go backward in reverse", ops.Backward(s, m),
                            ops.Backward(s, m - 1)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PipelineProof> ProvePipeline(const Schedule& schedule,
                                            const PipelineProfile& profile,
                                            const PipelineTransport& transport) {
  ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(schedule, profile));
  RETURN_IF_ERROR(ProveSequences(ops));
  // Proves the order of ops as well: actions are made in such an order.
  ASSIGN_OR_RETURN(const RankActions actions, MakeRankActions(ops, transport.receives));
  RETURN_IF_ERROR(ProveLines(ops, actions, transport.scope));
  // With no message waiting anywhere: more buffers can only make it easier.
  RETURN_IF_ERROR(SimulateQueues(ops, actions, {.scope = transport.scope}).status());
  PipelineProof proof{.ops = ops.size(), .memory = PeakMemory(ops)};
  RETURN_IF_ERROR(CheckMemory(ops, proof.memory));
  for (TransferIndex transfer = 0; transfer < ops.transfers(); ++transfer) {
    if (ops.Passes(transfer)) proof.messages += schedule.microbatches;
  }
  return proof;
}

}  // namespace crossmesh
