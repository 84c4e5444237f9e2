#pragma once

#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "worker/pipeline/worker_program.h"

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The layer program of this name. Its parts take of the memory for as long as they live: a run of a
// part for each buffer of its transfer. InvalidArgument names the rank, op, transfer or message:
// none, or one that is there twice; a name that is empty or too long; a time below 0; a plan that
// is there twice, or AdmitPart refuses; an end with devices of this worker at a rank without ops
// here; messages with ops that there are none of, or not in the order of the ops at both ends; one
// inside a rank that its op gives after it is needed, or that waits for memory which an op after
// the one that gives it would free. ResourceExhausted: LaidOutPart::Admit, with program and
// transfer. Cost: linear, and that of proving the parts.
absl::StatusOr<WorkerProgram> FromProto(const v1::LayerProgram& proto, absl::string_view name,
                                        MemoryBudget& memory);

}  // namespace crossmesh
