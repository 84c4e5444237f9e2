#pragma once

#include "common/plan/indices.h"
#include "common/plan/worker_part.h"

#include <vector>

namespace crossmesh {

// Instead of the first set of devices that a worker's part has, this one. Its number stays.
void ReplaceFirstSet(WorkerPart::Spec& spec, const std::vector<DeviceRank>& ranks);

}  // namespace crossmesh
