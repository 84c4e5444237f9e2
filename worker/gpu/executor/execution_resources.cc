#include "worker/gpu/executor/execution_resources.h"

#include "common/base/status_macros.h"

namespace crossmesh {

absl::StatusOr<StreamEvents> StreamEvents::Create(Gpu& gpu) {
  StreamEvents events;
  ASSIGN_OR_RETURN(events.packed, GpuEvent::Create(gpu));
  ASSIGN_OR_RETURN(events.wired, GpuEvent::Create(gpu));
  ASSIGN_OR_RETURN(events.unpacked, GpuEvent::Create(gpu));
  return events;
}

absl::StatusOr<std::unique_ptr<ExecutionResources>> ExecutionResources::Create(
    Gpu& gpu, const RegisteredStaging& staging, int32_t steps_ahead) {
  std::unique_ptr<ExecutionResources> made(
      new ExecutionResources{.gpu = gpu,
                             .staging = staging,
                             .scale_kernel = gpu.KernelNamed<ScaleArguments>("crossmesh_scale")});
  ASSIGN_OR_RETURN(made->upload, GpuStream::Create(gpu));
  ASSIGN_OR_RETURN(made->pack, GpuStream::Create(gpu));
  // Before packs and unpacks, which can take all registers of a GPU for as long as they have
  // blocks: a step's transfers are not to wait until the next step is packed.
  ASSIGN_OR_RETURN(made->wire, GpuStream::Create(gpu, GpuStream::Priority::kGreatest));
  ASSIGN_OR_RETURN(made->unpack, GpuStream::Create(gpu));
  for (int32_t i = 0; i < steps_ahead; ++i) {
    ASSIGN_OR_RETURN(made->step_events.emplace_back(), StreamEvents::Create(gpu));
  }
  ASSIGN_OR_RETURN(made->scaled, GpuEvent::Create(gpu));
  ASSIGN_OR_RETURN(made->reduced, GpuEvent::Create(gpu));
  ASSIGN_OR_RETURN(made->end_events, StreamEvents::Create(gpu));
  return made;
}

}  // namespace crossmesh
