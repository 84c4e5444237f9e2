#pragma once

#include "worker/gpu/device/gpu.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Reduces what a leg has brought of one type: some segments of a list.
struct ReductionLaunch {
  GpuKernel<ReduceArguments> kernel;
  int64_t first_segment = 0;
  int32_t segments = 0;
  int64_t blocks = 0;  // of threads
  KernelReduction kind = KernelReduction::kSum;
  int64_t divisor = 1;
};

// Of a leg: one for each type. Appends what they are given to `segments`. InvalidArgument, naming
// the device, when what is to be filled has no memory, or memory between elements.
absl::StatusOr<std::vector<ReductionLaunch>> ReductionLaunchesOf(
    const Gpu& gpu, const GpuLeg& leg, std::vector<ReductionSegment>& segments);

}  // namespace crossmesh
