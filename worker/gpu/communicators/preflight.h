#pragma once

#include "common/communicators/preflight_report.h"
#include "worker/gpu/libraries/driver_api.h"
#include "worker/gpu/libraries/nccl_api.h"

#include <cstdint>
#include <map>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// Free memory of the current context's GPU.
absl::StatusOr<int64_t> FreeGpuBytes(const DriverApi& driver);

// The variables of `environment`, as `environ` has them, that NCCL or CUDA look at.
std::map<std::string, std::string> GpuEnvironment(const char* const* environment);

// What this process, whose context is current, has to say before it gets a communicator.
absl::StatusOr<PreflightReport> TakePreflight(const DriverApi& driver, const NcclApi& nccl,
                                              const RankName& self);

}  // namespace crossmesh
