#pragma once

#include "common/mesh/topology.h"
#include "crossmesh/v1/worker_service.pb.h"

#include <span>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// A row for each GPU of these workers.
std::string GpusText(std::span<const v1::Worker> workers);

// What these workers tell of their hosts, as a network's description. NotFound: none tells of one;
// what Topology::Create says.
absl::StatusOr<Topology> DescribedNetwork(std::span<const v1::Worker> workers);

}  // namespace crossmesh
