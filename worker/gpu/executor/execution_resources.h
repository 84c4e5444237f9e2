#pragma once

#include "worker/gpu/communicators/communicator.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class RegisteredStaging;

// Points in the three streams: after a step's packs, its transfers, and its copies and unpacks; or
// after all work that is there.
struct StreamEvents {
  static absl::StatusOr<StreamEvents> Create(Gpu& gpu);

  std::unique_ptr<GpuEvent> packed;
  std::unique_ptr<GpuEvent> wired;
  std::unique_ptr<GpuEvent> unpacked;
};

// What the executions on one GPU share, one after the other: streams, events, kernels, staging, and
// lists that keep their memory. Confined to the thread of its Gpu.
struct ExecutionResources {
  // `steps_ahead` is how many steps may be on the streams at once. All must outlive this.
  static absl::StatusOr<std::unique_ptr<ExecutionResources>> Create(
      Gpu& gpu, const RegisteredStaging& staging, int32_t steps_ahead);

  Gpu& gpu;
  const RegisteredStaging& staging;
  const GpuKernel<ScaleArguments> scale_kernel;
  std::unique_ptr<GpuStream> upload;  // of what bindings have on the GPU; waits for no other
  std::unique_ptr<GpuStream> pack;
  std::unique_ptr<GpuStream> wire;
  std::unique_ptr<GpuStream> unpack;      // copies as well, which run while its step's transfers do
  std::vector<StreamEvents> step_events;  // [step modulo their number]
  std::unique_ptr<GpuEvent> scaled;       // after the scales of an execution
  std::unique_ptr<GpuEvent> reduced;      // after the reductions of a leg
  StreamEvents end_events;                // after everything
  std::vector<RankMessage> sends;         // of the step in hand
  std::vector<RankMessage> receives;
  std::vector<Collective> collectives;
};

}  // namespace crossmesh
