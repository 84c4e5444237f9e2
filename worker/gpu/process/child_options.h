#pragma once

#include "worker/gpu/process/gpu_child.h"
#include "worker/gpu/process/gpu_process_options.h"

#include <cstdint>

namespace crossmesh {

// With what program, arguments and environment the process of a GPU begins. `incarnation`: of the
// process.
GpuChild::Options ChildOptions(const GpuProcessOptions& options, uint64_t incarnation);

}  // namespace crossmesh
