#pragma once

#include "worker/executor/prepared_part.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/compiler/message_schedule.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// Gives the messages of a part of one device their places in staging, and the steps what they wait
// for; see CompiledPart::Create, whose options these are. ResourceExhausted when a step's messages
// do not fit.
absl::StatusOr<CompiledPart::Lists> CompilePart(const PreparedPart& part,
                                                const MessageSchedule& schedule,
                                                const CompiledPart::Options& options);

}  // namespace crossmesh
