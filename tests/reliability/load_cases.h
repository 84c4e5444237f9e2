#pragma once

#include "tests/live/reshard_case.h"

#include <cstdint>
#include <string>

namespace crossmesh {

// Between storages that no other load has.
ReshardOptions BetweenStoragesOf(const std::string& load, Manifest manifest);

// Summands on node-0, node-1 and node-2, which become shards of their sums.
ReshardOptions SumsOf(const std::string& load, int64_t rows);

}  // namespace crossmesh
