#pragma once

#include "common/plan/plan.h"
#include "common/plan/tensor_table.h"
#include "common/plan/testing/random_source.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// A random plan that Prove accepts; now and then its relays have several chunks and leaves.
Plan RandomCase(RandomSource& random);

// A few tensors of which some are sent as F8_E4M3, with their scales; and such a plan of them.
TensorTable RandomQuantizedTable(RandomSource& random);
Plan RandomQuantizedCase(RandomSource& random);

// By rank: which of `workers` workers owns the device.
std::vector<int32_t> DealDevices(RandomSource& random, const Plan& plan, int32_t workers);

}  // namespace crossmesh
