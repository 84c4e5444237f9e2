#include "common/plan/channels.h"

#include "common/plan/plan.h"

#include <numeric>
#include <span>

namespace crossmesh {
namespace {

// Stable counting sort of hop indices by one of their devices.
std::vector<int32_t> SortBy(DeviceRank Hop::* device, std::span<const Hop> hops,
                            const std::vector<int32_t>& order, size_t devices) {
  std::vector<int32_t> next(devices + 1, 0);
  for (const Hop& hop : hops) ++next[hop.*device + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<int32_t> sorted(order.size());
  for (const int32_t h : order) sorted[next[hops[h].*device]++] = h;
  return sorted;
}

}  // namespace

Channels ChannelsOf(const Plan& plan) {
  const std::vector<Hop>& hops = plan.hops();
  const size_t devices = plan.tensors().devices().size();
  std::vector<int32_t> order(hops.size());
  std::iota(order.begin(), order.end(), 0);
  order = SortBy(&Hop::to, hops, order, devices);
  order = SortBy(&Hop::from, hops, order, devices);

  Channels channels{.of_hop = std::vector<ChannelIndex>(hops.size())};
  for (const int32_t h : order) {
    const std::pair ends(hops[h].from, hops[h].to);
    if (channels.ends.empty() || channels.ends.back() != ends) channels.ends.push_back(ends);
    channels.of_hop[h] = static_cast<ChannelIndex>(channels.ends.size()) - 1;
  }
  return channels;
}

}  // namespace crossmesh
