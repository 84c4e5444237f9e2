// How much of what is random a test tries, and where it begins.

#pragma once

#include <cstdint>

namespace crossmesh {

// A number from the environment, so that a case that failed can be run alone.
uint64_t FromEnvironment(const char* name, uint64_t otherwise);

// How many cases a random test has: as many as CROSSMESH_CASES says, else `count`. Under
// AddressSanitizer that is half, since a case takes several times as long, and under
// ThreadSanitizer a quarter, at least one: each case has the same threads, and what makes cases
// differ, the plan, is looked at by the other presets.
int64_t RandomCases(int64_t count);

}  // namespace crossmesh
