#pragma once

#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "common/plan/worker_part.h"

#include <cstdint>

namespace crossmesh {

// How many bytes of the heap these keep, as heap_bytes.h counts: all but rounding. Cost: linear in
// what they hold, but far less than to make it.

// With its tensors and its slicing, which others may share.
int64_t HeapBytes(const Plan& plan);
// Without the tensors, which it shares with the plan that it was cut from.
int64_t HeapBytes(const WorkerPart& part);
int64_t HeapBytes(const Mesh& mesh);
int64_t HeapBytes(const Topology& topology);
int64_t HeapBytes(const Manifest& manifest);

}  // namespace crossmesh
