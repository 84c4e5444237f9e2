#pragma once

#include "worker/executor/prepared_part.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// The step of the execution in which each chunk of a relay is due at its root: its period
// (common/plan/chunk_periods.h). A hop takes it so many steps later as the hop's period says.
//
// Follows only from what both ends of a hop know: the relay and how it is cut. Ascending. Cost:
// linear in chunks.
std::vector<int64_t> ChunkSteps(const PreparedPart& part, const PreparedPart::Node& node);

}  // namespace crossmesh
