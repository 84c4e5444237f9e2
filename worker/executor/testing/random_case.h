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

// For random tests: a number from the environment, so that a failed case can be run alone.
uint64_t FromEnvironment(const char* name, uint64_t otherwise);

// How many cases a random test has: as many as CROSSMESH_CASES says, else `count`. Under
// AddressSanitizer that is half, since a case takes several times as long, and under
// ThreadSanitizer a quarter, at least one: each case has the same threads, and what makes cases
// differ, the plan, is looked at by the other presets.
int64_t RandomCases(int64_t count);

}  // namespace crossmesh
