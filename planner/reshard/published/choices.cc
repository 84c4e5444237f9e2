#include "planner/reshard/published/choices.h"

#include <absl/numeric/int128.h>

namespace crossmesh {

std::vector<HostRank> HostsOf(std::span<const DeviceRank> devices, const TensorTable& tensors) {
  std::vector<HostRank> hosts;
  for (const DeviceRank device : devices) {
    const HostRank host = tensors.host_of(device);
    if (!hosts.empty() && hosts.back() == host) continue;  // nearly always
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

std::vector<HostRank> ReceiverHosts(const Slices& slices, const Slice& slice,
                                    const TensorTable& tensors) {
  const std::vector<HostRank> holders = HostsOf(slices.holders(slice), tensors);
  std::vector<HostRank> hosts = HostsOf(slices.receivers(slice), tensors);
  std::erase_if(hosts, [&](HostRank h) { return std::ranges::find(holders, h) != holders.end(); });
  return hosts;
}

std::vector<DeviceRank> OnHost(std::span<const DeviceRank> devices, HostRank host,
                               const TensorTable& tensors) {
  std::vector<DeviceRank> result;
  std::ranges::copy_if(devices, std::back_inserter(result),
                       [&](DeviceRank d) { return tensors.host_of(d) == host; });
  return result;
}

int64_t PartsOf(const Slice& slice, int64_t devices) {
  return std::min(devices, slice.bytes() / slice.item_bytes);
}

int64_t PartEnd(const Slice& slice, int64_t part, int64_t parts) {
  const int64_t items = slice.bytes() / slice.item_bytes;
  // 128 bits: items times parts may exceed 64.
  const absl::int128 before = absl::int128(items) * (part + 1) / parts;
  return slice.begin + static_cast<int64_t>(before) * slice.item_bytes;
}

}  // namespace crossmesh
