#pragma once

#include "common/plan/plan.h"
#include "worker/gpu/compiler/compiled_part.h"

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

using CompiledParts = std::vector<std::shared_ptr<const CompiledPart>>;

// The compiled parts of all devices of a plan, by rank.
absl::StatusOr<CompiledParts> CompiledPartsOf(const Plan& plan,
                                              const CompiledPart::Options& options);

}  // namespace crossmesh
