#pragma once

#include "worker/executor/prepared_part.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// The step of the run in which each chunk of a relay is due at its root: the period of the plan in
// which its due time lies. A hop takes it so many steps later as the hop's period says.
//
// Of one relay a step takes at most as many bytes as two of the plan's largest chunks have; what is
// due beyond that goes in the steps that follow. So a relay without a due interval of its own, or
// with a short one, is spread by its bytes.
//
// Follows only from what both ends of a hop know: the relay and how it is cut. Ascending. Cost:
// linear in chunks.
//
// Example: a relay of 4 MiB in chunks of at most 1 MiB, in a run of 8 periods. Due all the time, it
// has 8 chunks, in steps 0 to 7. Due at 0, it has 4, in steps 0, 0, 1, 1.
std::vector<int64_t> ChunkSteps(const PreparedPart& part, const PreparedPart::Node& node);

}  // namespace crossmesh
