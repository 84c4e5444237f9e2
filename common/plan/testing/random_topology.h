#pragma once

#include "common/mesh/topology.h"
#include "common/plan/tensor_table.h"
#include "common/plan/testing/random_source.h"

#include <cstdint>

namespace crossmesh {

struct RandomTopologyOptions {
  int64_t nics_max = 3;  // of a host
  // Rates are this times 1, 2, ..., rates_max.
  int64_t bytes_per_second = 1;
  int64_t rates_max = 8;
  int64_t latency_ns_max = 0;  // of a NIC and direction
  bool racks = false;          // some hosts are in one
  bool undescribed = false;    // some hosts are not described
};

// A network of the hosts of the table.
Topology RandomTopology(RandomSource& random, const TensorTable& tensors,
                        const RandomTopologyOptions& options = {});

}  // namespace crossmesh
