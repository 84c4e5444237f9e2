#pragma once

#include "worker/gpu/compiler/compiled_part.h"

#include <cstdint>
#include <span>

#include <absl/status/status.h>

namespace crossmesh {

// The streams of a GPU that runs a compiled part.
enum class StepStream : uint8_t { kPack, kWire, kUnpack };

// Proves that in every order of the streams of a compiled part that its waits allow, no place is
// written while a reader has still to read what is there, and none is read before it is
// written. Internal, naming both, when some order does; or when a place is none of the staging, or
// what is sent or unpacked is not what was put there. `steps` are the compiled part's own, or
// with other waits.
//
// Looks at all orders at once: what has certainly ended when something begins follows from the
// order of each stream and from the waits; anything else may come later.
absl::Status ProveStagingOrder(const CompiledPart& compiled,
                               std::span<const CompiledPart::Step> steps);

}  // namespace crossmesh
