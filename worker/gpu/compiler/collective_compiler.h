#pragma once

#include "worker/executor/prepared_part.h"
#include "worker/gpu/compiler/compiled_part.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// The one step of a part of one device for which there is a collective, or none of a device that
// is in none of its groups; see CompiledPart. In staging are the hashes of what every device of the
// group is root of, in its order. ResourceExhausted
// when they do not fit. InvalidArgument where devices have lists of hashes of different lengths,
// which no part that was proven says. Cost: linear in chunks.
absl::StatusOr<CompiledPart::Lists> CompileForCollective(const PreparedPart& part,
                                                         const CompiledPart::Options& options);

}  // namespace crossmesh
