// Choices that several published strategies share.

#pragma once

#include "common/plan/tensor_table.h"
#include "planner/reshard/published/slices.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace crossmesh {

// The candidate with the least load, the first of several.
template <typename Load>
int32_t LeastLoaded(std::span<const int32_t> candidates, const std::vector<Load>& load) {
  return *std::ranges::min_element(candidates, {}, [&](int32_t c) { return load[c]; });
}

// Hosts of the devices, each once, in the order of their first device.
std::vector<HostRank> HostsOf(std::span<const DeviceRank> devices, const TensorTable& tensors);

// Hosts in HostsOf(receivers) order on which no device holds the slice.
std::vector<HostRank> ReceiverHosts(const Slices& slices, const Slice& slice,
                                    const TensorTable& tensors);

// The devices of one host, in the given order.
std::vector<DeviceRank> OnHost(std::span<const DeviceRank> devices, HostRank host,
                               const TensorTable& tensors);

// Of nearly equal parts of a slice for `devices` devices, those that are not empty.
int64_t PartsOf(const Slice& slice, int64_t devices);

// The end of part `part` of `parts` nearly equal ones of a slice, in packed bytes of its class; cut
// between elements, so that parts may be empty.
int64_t PartEnd(const Slice& slice, int64_t part, int64_t parts);

}  // namespace crossmesh
