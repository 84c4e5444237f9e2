#pragma once

#include "common/mesh/topology.h"
#include "common/plan/tensor_table.h"

#include <string>
#include <vector>

namespace crossmesh {

// What a reader of a plan's figures should know: one sentence that names the hosts of the table
// that `topology` does not describe while it describes others. Where it describes no host, all
// rates are assumed, which is no oversight. Cost: linear in the hosts.
std::vector<std::string> PlanWarnings(const TensorTable& tensors, const Topology& topology);

}  // namespace crossmesh
