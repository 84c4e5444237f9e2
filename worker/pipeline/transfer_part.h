#pragma once

#include "crossmesh/v1/execution_service.pb.h"
#include "worker/pipeline/worker_program.h"

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct PartAdmission {
  absl::string_view program;  // its name, for messages
  MemoryBudget& memory;
};

// Gives a transfer, of which all else is known but its ops, its part, and says which ends this
// worker has. InvalidArgument, without the transfer's name: buffers that are none or too many; a
// part that is refused, that has other than one course of one instance, whose tensors are not as
// many as the transfer's, or that has no device of this worker; with a course, a plan that leaves
// no room for steps. ResourceExhausted: as LaidOutPart::Admit, with the names.
absl::Status AdmitPart(const v1::WorkerPart& proto, const PartAdmission& admission,
                       WorkerProgram::Transfer& transfer);

}  // namespace crossmesh
