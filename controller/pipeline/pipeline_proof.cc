#include "controller/pipeline/pipeline_proof.h"

#include "common/base/status_macros.h"
#include "controller/pipeline/op_table.h"

namespace crossmesh {

absl::StatusOr<PipelineProof> ProvePipeline(const Schedule& schedule,
                                            const PipelineProfile& profile,
                                            const PipelineTransport& transport) {
  ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(schedule, profile));
  // Proves the order of ops as well: a program is made in such an order.
  ASSIGN_OR_RETURN(const Program program, MakeProgram(ops, transport.receives));
  RETURN_IF_ERROR(ProveLines(ops, program, transport.scope));
  RETURN_IF_ERROR(RunQueues(ops, program, {.scope = transport.scope}).status());
  PipelineProof proof{.ops = ops.size(), .memory = PeakMemory(ops)};
  RETURN_IF_ERROR(CheckMemory(ops, proof.memory));
  for (ChannelIndex channel = 0; channel < ops.channels(); ++channel) {
    if (ops.Passes(channel)) proof.transfers += schedule.microbatches;
  }
  return proof;
}

}  // namespace crossmesh
