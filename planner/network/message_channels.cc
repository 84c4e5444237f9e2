#include "planner/network/message_channels.h"

#include "planner/network/gpu_costs.h"

#include <algorithm>
#include <bit>

namespace crossmesh {
namespace {

int64_t Quotient(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

int64_t PowerOfTwoUp(int64_t value) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
}

// Two for each link of NVLink between two GPUs, or two where there is none.
int64_t ChannelsByLinks(const GpuNetwork& network) {
  const int64_t rate = std::ranges::min(network.links.host_rates.out);
  return 2 * std::max<int64_t>(1, rate / gpu_costs::kLinkBytesPerSecond);
}

int64_t ChannelsByNic(const GpuNetwork& network) {
  const int64_t rate = std::ranges::min(network.nics.host_rates.out);
  return std::max<int64_t>(2, Quotient(rate, gpu_costs::kNicChannelBytesPerSecond));
}

// Of the host that has most of these GPUs.
int64_t GpusOfAHost(const GpuNetwork& network) {
  int64_t most = 0;
  for (const HostRank host : network.host_of) {
    most = std::max<int64_t>(most, std::ranges::count(network.host_of, host));
  }
  return most;
}

}  // namespace

MessageChannels::MessageChannels(const GpuNetwork& network) {
  using gpu_costs::kChannels;
  const auto ranks = std::ssize(network.host_of);
  if (ranks == 0) return;
  if (network.hosts.hosts.size() == 1) {
    most_ = std::min(kChannels, PowerOfTwoUp(ChannelsByLinks(network)));
    part_min_ = gpu_costs::kLinkPieceBytes / 8;
    part_max_ = gpu_costs::kLinkPieceBytes * 32;
    by_links_ = kChannels;
  } else {
    const int64_t local = GpusOfAHost(network);
    most_ = ChannelsByNic(network);
    if (local > 1) most_ = std::min(most_, ChannelsByLinks(network));
    most_ = std::min(kChannels, PowerOfTwoUp(most_));
    // So that all peers have channels at once.
    while (most_ > 1 && most_ * Quotient(ranks, gpu_costs::kPeersOfAChannel) > kChannels) {
      most_ /= 2;
    }
    part_min_ = gpu_costs::kNicPieceBytes / 2;
    part_max_ = gpu_costs::kNicPieceBytes;
    by_links_ = std::min(kChannels, most_ * Quotient(local, gpu_costs::kPeersOfAChannel));
  }
  least_ = most_;
  while (least_ > 1 && least_ * ranks > kChannels) least_ /= 2;
}

int64_t MessageChannels::Of(int64_t bytes) const {
  int64_t channels = std::clamp<int64_t>(Quotient(bytes, part_min_), 1, least_);
  while (Quotient(bytes, channels) > part_max_ && channels <= most_ / 2) channels *= 2;
  return channels;
}

}  // namespace crossmesh
