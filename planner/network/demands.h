#pragma once

#include "common/plan/id_sets.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"
#include "planner/network/host_network.h"

#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// Bytes that one set of places holds and another set needs and does not hold.
struct Demand {
  int32_t holders = 0;    // index into Demands::sets
  int32_t receivers = 0;  // likewise; disjoint from the holders, not empty
  int64_t bytes = 0;
};

// What has to cross the network. Places are hosts, or racks one level up.
struct Demands {
  IdSets sets;
  std::vector<Demand> demands;

  std::span<const int32_t> holders(const Demand& d) const { return sets[d.holders]; }
  std::span<const int32_t> receivers(const Demand& d) const { return sets[d.receivers]; }
};

// Bytes that each of `places` must receive.
std::vector<int64_t> BytesIn(const Demands& demands, size_t places);
// Bytes that all of them must receive together: no plan brings less between them.
int64_t LeastBytes(const Demands& demands);

// The classes of a request grouped by the hosts of their holders and receivers: what the flow is
// computed over. Groups are numbered by their first class.
struct HostGroups {
  static constexpr int32_t kNone = -1;

  Demands demands;                      // one per group
  std::vector<int32_t> group_of_class;  // kNone: all receivers are on holder hosts
};

// Cost: linear in the classes, and in the devices of their sets.
HostGroups GroupByHosts(const TensorTable& tensors, const Slicing& slicing);
// The same with each device as a place of its own.
HostGroups GroupByDevices(const TensorTable& tensors, const Slicing& slicing);

// The same demands between racks: those whose receivers are not all in racks that hold them.
// `network` must have racks. Cost: linear in the demands and their hosts.
Demands RackDemands(const Demands& hosts, const HostNetwork& network);

}  // namespace crossmesh
