#pragma once

#include "planner/pipeline/profile.h"

#include <cstdint>
#include <random>

namespace crossmesh {

// Up to `deviation` of 1 either way, evenly.
double AboutOne(std::mt19937_64& random, double deviation);

// Stages one after the other, each alone on its rank. Every op takes AboutOne seconds, and every
// transfer `transfer_seconds`. A microbatch holds a byte until the gradient of its weights. Memory
// is not limited.
PipelineProfile RandomChain(std::mt19937_64& random, int32_t stages, double deviation,
                            double transfer_seconds);

// Each rank sends through one port and receives through another, as a host with one NIC does.
void AddPortsOfRanks(PipelineProfile& profile);

}  // namespace crossmesh
