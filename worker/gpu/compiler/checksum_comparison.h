#pragma once

#include "worker/executor/task.h"
#include "worker/gpu/compiler/compiled_part.h"

#include <cstdint>
#include <span>

namespace crossmesh {

// What the unpacks of an execution have left (CompiledPart::Unpack). Empty with checksums off.
struct LeafHashes {
  std::span<const uint64_t> of_root;
  std::span<const uint64_t> in_place;
};

// The report of the compiled part's device, once all its steps are done: DataLoss naming the first
// relay and bytes that differ from the root's; the bytes of the relays that agree, and of copies;
// and the same digest as workers give of host memory. Cost: linear in leaves.
DeviceReport CompareChecksums(const CompiledPart& compiled, const LeafHashes& hashes);

}  // namespace crossmesh
