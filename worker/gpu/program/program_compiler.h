#pragma once

#include "worker/executor/prepared_part.h"
#include "worker/gpu/program/gpu_program.h"
#include "worker/gpu/program/message_schedule.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Gives the messages of a part of one device their places in staging, and the steps what they wait
// for; see GpuProgram::Create, whose options these are. ResourceExhausted when a step's messages do
// not fit.
absl::StatusOr<GpuProgram::Lists> CompileProgram(const PreparedPart& part,
                                                 const MessageSchedule& schedule,
                                                 const GpuProgram::Options& options);

}  // namespace crossmesh
