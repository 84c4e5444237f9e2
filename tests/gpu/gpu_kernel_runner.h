#pragma once

#include "worker/gpu/kernels/testing/kernel_runner.h"

#include <memory>

#include <absl/status/statusor.h>

namespace crossmesh {

// On the first GPU of the machine's driver, on an image of the memory, which is copied there and
// back.
absl::StatusOr<std::unique_ptr<KernelRunner>> MakeGpuKernelRunner();

}  // namespace crossmesh
