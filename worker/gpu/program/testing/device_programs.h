#pragma once

#include "common/plan/plan.h"
#include "worker/gpu/program/gpu_program.h"

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

using DevicePrograms = std::vector<std::shared_ptr<const GpuProgram>>;

// The programs of all devices of a plan, by rank.
absl::StatusOr<DevicePrograms> ProgramsOf(const Plan& plan, const GpuProgram::Options& options);

}  // namespace crossmesh
