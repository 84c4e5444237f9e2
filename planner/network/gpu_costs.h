// How NCCL, NCCL M2N and our staging are built, as far as predictions need it, read out of NCCL
// 2.30.7; what M2N's calls cost, which is assumed. What the executor's calls cost is GpuCosts, of
// the network's description.

#pragma once

#include <cstdint>

namespace crossmesh::gpu_costs {

// Channels for sends and receives, of a communicator: the most that there can be, which processes
// of GPUs ask for (docs/adr/0014).
inline constexpr int64_t kChannels = 64;

// What NCCL expects of one of NVLink's links, 20.0 to 40.1 GB/s by generation (topo.h), by data
// sheets, and of a channel over a NIC (paths.cc, P2P_PER_CHANNEL_NET_BW).
inline constexpr int64_t kLinkBytesPerSecond = 25'000'000'000;
inline constexpr int64_t kNicChannelBytesPerSecond = 14'000'000'000;

// Peers that a channel serves at once (device.h, NCCL_MAX_DEV_WORK_P2P_PER_BATCH).
inline constexpr int64_t kPeersOfAChannel = 8;

// In which a channel copies inside a host, an eighth of NCCL_BUFFSIZE (docs/adr/0014), and between
// hosts (init.cc, P2P_NET_CHUNKSIZE).
inline constexpr int64_t kLinkPieceBytes = int64_t{256} << 10;
inline constexpr int64_t kNicPieceBytes = int64_t{128} << 10;

// The staging of a GPU, by default, for what it sends and receives in the steps that are under way
// at once.
inline constexpr int64_t kStagingBytes = int64_t{256} << 20;
inline constexpr int64_t kStepsInStaging = 4;

// What a rank of NCCL's ring passes on at once between hosts, and how long it takes to begin with
// it: assumed, never measured.
inline constexpr double kRingForwardSeconds = 2e-6;
inline constexpr int64_t kRingSliceBytes = int64_t{1} << 17;

// Of NCCL M2N, read out of NVIDIA/nccl-extensions at 44d2de0, and never measured. What a thread
// block copies by the kernel is taken to be what a channel copies.
// Of one batch, which packs, moves and unpacks the tensors of one topology: barriers or grants,
// launches, signals.
inline constexpr double kM2nBatchSeconds = 60e-6;
// Of one copy (cudaMemcpy3DAsync) of a tensor's tile or part of one, where it has few bytes.
inline constexpr double kM2nCopySeconds = 2e-6;
// Thread blocks of a kernel, and what it forwards at once (reshard_limits.h).
inline constexpr int64_t kM2nThreadBlocks = 8;
inline constexpr int64_t kM2nPieceBytes = int64_t{256} << 10;
// Ranks among which copy engines put, if they are on one host (MAX_DIRECT_TARGETS).
inline constexpr int64_t kM2nDirectRanks = 64;

}  // namespace crossmesh::gpu_costs
