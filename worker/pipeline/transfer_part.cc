#include "worker/pipeline/transfer_part.h"

#include "common/base/status_macros.h"
#include "common/wire/worker_part_codec.h"
#include "worker/courses/course_steps.h"

#include <cstdint>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

template <typename... Parts>
absl::Status NotAdmitted(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", parts...));
}

}  // namespace

absl::Status AdmitPart(const v1::WorkerPart& proto, const PartAdmission& admission,
                       WorkerProgram::Transfer& transfer) {
  if (transfer.buffers < 1 || transfer.buffers > WorkerProgram::kBuffersMax) {
    return NotAdmitted("1 to ", WorkerProgram::kBuffersMax, " buffers, found ", transfer.buffers);
  }
  ASSIGN_OR_RETURN(WorkerPart part, FromProto(proto));
  RETURN_IF_ERROR(CheckReplayable(part, transfer.plan));
  const std::string name = absl::StrCat(admission.program, ": transfer ", transfer.Name());
  ASSIGN_OR_RETURN(
      transfer.part,
      LaidOutPart::Admit(std::make_shared<const WorkerPart>(std::move(part)),
                         {.name = name, .memory = admission.memory, .runs = transfer.buffers}));
  transfer.sends = !transfer.part->sources.empty();
  transfer.receives = !transfer.part->destinations.empty();
  const size_t tensors = transfer.part->prepared->part().tensors().group_of_tensor().size();
  if (transfer.tensors.size() != tensors) {
    return NotAdmitted(tensors, " tensors, found ", transfer.tensors.size());
  }
  if (!transfer.sends && !transfer.receives) return NotAdmitted("a device of this worker");
  return absl::OkStatus();
}

}  // namespace crossmesh
