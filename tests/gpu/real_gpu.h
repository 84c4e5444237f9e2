#pragma once

#include "worker/gpu/libraries/driver_api.h"
#include "worker/gpu/libraries/nccl_api.h"

#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// What a check with real GPUs needs.
struct GpuNeeds {
  int gpus = 1;
  bool nccl = false;
  bool ranks_share_gpu = false;  // of a communicator; implies `nccl`
};

// Why this machine cannot make the check, in a line with which it is skipped; "" when it can. The
// one place that decides this. What is there and does not work is no reason: the check shows it.
//
// The machine is looked at once, by a process of its own, since one that has used CUDA cannot fork
// any more. To be asked before this one uses CUDA.
std::string WhatLacks(const GpuNeeds& needs);

// The library that the variable CROSSMESH_DRIVER_LIBRARY names; without it libcuda.so.1.
absl::StatusOr<std::unique_ptr<const DriverApi>> LoadDriver();
// The library that CROSSMESH_NCCL_LIBRARY names; without it that of the wheel with which this was
// compiled, if it is still there; else libnccl.so.2.
absl::StatusOr<std::unique_ptr<const NcclApi>> LoadNccl();

}  // namespace crossmesh
