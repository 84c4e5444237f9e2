#pragma once

#include "planner/network/nic_ports.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// A pair of NICs over which bytes go from one host to another.
struct NicLane {
  int32_t out_port = 0;
  int32_t in_port = 0;
  double part = 0;  // of the bytes between the two hosts
};

// As few pairs as fill all NICs of both hosts: the NICs of the sender and those of the receiver,
// each as wide as its part of its host's rate, lie side by side, and where one lies beside another
// there is a lane.
std::vector<NicLane> LanesBetween(const NicPorts& ports, HostRank from, HostRank to);

// The most lanes that a NIC of any host has to or from one other host. A chunk takes one lane, so
// that so many chunks share a NIC where one would fill it. Cost: linear in hosts, and lanes between
// hosts that differ.
int64_t LanesOfOneNic(const NicPorts& ports);

}  // namespace crossmesh
