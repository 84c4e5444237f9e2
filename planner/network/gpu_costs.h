// What a GPU's part in a run costs beside its ports. All of these are assumed: read out of NCCL
// 2.30.7 and CUDA 13, never measured.

#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace crossmesh::gpu_costs {

// Of the thread that issues a step: a pack, an unpack, and one group of NCCL calls. In a
// communicator that does not block ncclGroupEnd starts a thread, which launches (group.cc), and the
// next group may not begin before ncclCommGetAsyncError has joined it: 40 to 100 us.
inline constexpr double kStepSeconds = 60e-6;

// Of one more message in a group: enqueueing it, and its turn in the kernel.
inline constexpr double kMessageSeconds = 1e-6;

// Of a channel's copy loop, one CTA. NCCL takes 20 GB/s a channel for Ampere and more for later
// ones (tuning.cc).
inline constexpr double kChannelBytesPerSecond = 20e9;

// Channels for sends and receives, of a communicator.
inline constexpr int64_t kChannels = 32;

// A channel more for so many bytes, up to the channels of a peer; and twice as many where a channel
// would have more than the second of these (enqueue.cc, addP2pToPlan).
inline constexpr int64_t kChannelBytesMin = int64_t{64} << 10;
inline constexpr int64_t kChannelBytesMax = int64_t{16} << 20;

// Over which a message of a communicator of so many ranks goes.
constexpr int64_t MessageChannels(int64_t bytes, int64_t ranks) {
  const auto ranks_rounded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ranks)));
  const int64_t channels = std::max<int64_t>(1, kChannels / ranks_rounded);
  const int64_t filled = (bytes + kChannelBytesMin - 1) / kChannelBytesMin;
  if (filled <= channels) return std::max<int64_t>(1, filled);
  const int64_t wanted = (bytes + kChannelBytesMax - 1) / kChannelBytesMax;
  return std::min(kChannels, std::max(channels, wanted));
}

// The staging of a GPU, by default, for what it sends and receives in the steps that are under way
// at once.
inline constexpr int64_t kStagingBytes = int64_t{256} << 20;
inline constexpr int64_t kStepsInStaging = 4;

}  // namespace crossmesh::gpu_costs
