#pragma once

#include "worker/executor/prepared_part.h"
#include "worker/gpu/compiler/compiled_part.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// The steps of a part of one device whose tensors NCCL M2N moves; see CompiledPart. In staging are
// hashes alone: of what the device is root of, relay after relay, and then those of what it
// receives. ResourceExhausted when they do not fit. InvalidArgument where M2N cannot be asked,
// which no part that was proven says. Cost: linear in chunks.
absl::StatusOr<CompiledPart::Lists> CompileForM2n(const PreparedPart& part,
                                                  const CompiledPart::Options& options);

}  // namespace crossmesh
