// What a routing strategy is given, with the objects that it refers to. For tests.

#pragma once

#include "common/base/check.h"
#include "common/mesh/topology.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"
#include "planner/network/bound.h"
#include "planner/network/demands.h"
#include "planner/network/host_network.h"
#include "planner/network/routing.h"
#include "planner/reshard/rack_routes.h"

#include <utility>

namespace crossmesh {

struct ProblemFixture {
  ProblemFixture(const TensorTable& table, const Topology& topology)
      : tensors(table),
        slicing(SlicingOf(table)),
        network(HostNetworkOf(table, topology)),
        groups(GroupByHosts(table, slicing)),
        bound(BoundOf(groups.demands, network)) {}

  RoutingProblem problem(uint64_t seed = 0) const {
    return {.tensors = tensors,
            .slicing = slicing,
            .network = network,
            .groups = groups,
            .bound = bound,
            .seed = seed};
  }

  const TensorTable& tensors;
  const Slicing slicing;
  const HostNetwork network;
  const HostGroups groups;
  const ExactBound bound;

 private:
  static ExactBound BoundOf(const Demands& demands, const HostNetwork& network) {
    ExactBound bound = ComputeBound(demands, network);
    CHECK_OK(AddMix(demands, network, bound));
    return bound;
  }
  static Slicing SlicingOf(const TensorTable& table) {
    absl::StatusOr<Slicing> slicing = Slicing::Create(table);
    CHECK_OK(slicing);
    return *std::move(slicing);
  }
};

}  // namespace crossmesh
