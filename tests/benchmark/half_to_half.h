#pragma once

#include "crossmesh/v1/reshard.pb.h"
#include "crossmesh/v1/reshard_service.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace crossmesh {

// A reshard of a matrix by rows, from the first half of the hosts to the other one, each with a
// part.
v1::ReshardSpec HalfToHalf(const std::vector<std::string>& hosts);

// Rows of 64 slots to columns of 64 others, whose hosts nobody has. Each number is another plan, of
// matrices of which none has as many rows as another one.
v1::PlanReshardRequest NumberedPlan(int64_t number, int matrices);

}  // namespace crossmesh
