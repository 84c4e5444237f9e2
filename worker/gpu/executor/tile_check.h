#pragma once

#include "common/plan/tensor_table.h"
#include "worker/gpu/compiler/compiled_part.h"

#include <cstdint>
#include <span>

#include <absl/status/status.h>

namespace crossmesh {

// Whether the compiled part's device has memory for its tile of a tensor that is read or written
// there. `tiles` are addresses by manifest index, 0 for none. InvalidArgument, naming device and
// tensor, when it has not, or when elements that are to be converted would not lie at multiples of
// their size.
absl::Status CheckTile(const CompiledPart& compiled, Side side, int32_t tensor,
                       std::span<const uint64_t> tiles);

}  // namespace crossmesh
