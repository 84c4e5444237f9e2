// The hash of a leaf by a block of threads. Every thread takes one pair of lanes of one XXH3 block,
// 16 bytes of each of its 16 stripes, and sums what they contribute; then one thread for each lane
// goes through the sums of the blocks, and one thread merges the lanes.

#pragma once

#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/pieces_in_memory.h"
#include "worker/gpu/kernels/xxh3.h"

#include <cstdint>

namespace crossmesh {

inline constexpr int kLeafBytes = 64 << 10;
inline constexpr int kLeafBlocks = kLeafBytes / kXxh3BlockBytes;
inline constexpr int kPairsOfLanes = kXxh3Lanes / 2;
inline constexpr int kLeafThreads = kLeafBlocks * kPairsOfLanes;
inline constexpr int kStripesOfBlock = kXxh3BlockBytes / kXxh3StripeBytes;
static_assert(kPieceBytes == 2 * kXxh3LaneBytes);

// What a block of threads shares of the leaf in hand.
struct LeafHash {
  uint64_t secret[kXxh3SecretWords];
  uint64_t sums[kLeafBlocks][kXxh3Lanes];
  uint64_t lanes[kXxh3Lanes];
  // The end of the leaf, from LeafTailBegin on: a short leaf whole, else its last 64 bytes at
  // least.
  Uint128 tail[kXxh3ShortMax / kPieceBytes];
};

CROSSMESH_DEVICE inline int LeafTailBegin(int leaf_bytes) {
  if (leaf_bytes <= kXxh3ShortMax) return 0;
  return (leaf_bytes - kXxh3StripeBytes) / kPieceBytes * kPieceBytes;
}

// Which bytes of a leaf a thread takes: 16 bytes at `begin`, and then every 64 bytes.
struct LeafShare {
  CROSSMESH_DEVICE explicit LeafShare(int thread)
      : block(thread / kPairsOfLanes),
        pair(thread % kPairsOfLanes),
        begin(block * kXxh3BlockBytes + pair * kPieceBytes) {}
  int block;
  int pair;
  int begin;
};

CROSSMESH_DEVICE inline void PrepareLeafHash(int thread, LeafHash& hash) {
  if (thread < kXxh3SecretWords) hash.secret[thread] = Xxh3SecretWord(thread);
}

// Sums up a thread's share. Between PrepareLeafHash and CombineLeafHash, in every thread.
class LeafSum {
 public:
  CROSSMESH_DEVICE LeafSum(int leaf_bytes, LeafShare share)
      : share_(share),
        whole_stripes_((leaf_bytes - 1) / kXxh3StripeBytes),
        tail_begin_(LeafTailBegin(leaf_bytes)) {}

  // The piece of the given stripe of the block; zeros stand for bytes past the leaf's end.
  CROSSMESH_DEVICE void Add(int stripe, Uint128 piece, LeafHash& hash) {
    const int lane = 2 * share_.pair;
    if (share_.block * kStripesOfBlock + stripe < whole_stripes_) {
      const auto even = static_cast<uint64_t>(piece);
      const auto odd = static_cast<uint64_t>(piece >> 64);
      even_ += Xxh3Contribution(even, odd, hash.secret[lane + stripe]);
      odd_ += Xxh3Contribution(odd, even, hash.secret[lane + 1 + stripe]);
    }
    const int at = share_.begin + stripe * kXxh3StripeBytes;
    if (at >= tail_begin_) hash.tail[(at - tail_begin_) / kPieceBytes] = piece;
  }

  CROSSMESH_DEVICE void Finish(LeafHash& hash) const {
    const int lane = 2 * share_.pair;
    hash.sums[share_.block][lane] = even_;
    hash.sums[share_.block][lane + 1] = odd_;
  }

 private:
  const LeafShare share_;
  const int whole_stripes_;  // those with bytes after them
  const int tail_begin_;
  uint64_t even_ = 0;
  uint64_t odd_ = 0;
};

// Threads 0 to 7 do it.
CROSSMESH_DEVICE inline void CombineLeafHash(int thread, int leaf_bytes, LeafHash& hash) {
  const int lane = thread;
  if (lane >= kXxh3Lanes || leaf_bytes <= kXxh3ShortMax) return;
  const int blocks = (leaf_bytes - 1) / kXxh3BlockBytes;  // those with bytes after them
  uint64_t accumulator = Xxh3LaneStart(lane);
  for (int block = 0; block < blocks; ++block) {
    accumulator = Xxh3Scramble(accumulator + hash.sums[block][lane], hash.secret, lane);
  }
  accumulator += hash.sums[blocks][lane];

  const auto* tail = reinterpret_cast<const std::byte*>(hash.tail);
  const int last = leaf_bytes - kXxh3StripeBytes - LeafTailBegin(leaf_bytes);
  const uint64_t own = Xxh3Word(tail, last + kXxh3LaneBytes * lane);
  const uint64_t other = Xxh3Word(tail, last + kXxh3LaneBytes * (lane ^ 1));
  hash.lanes[lane] = accumulator + Xxh3Contribution(own, other, Xxh3LastKey(hash.secret, lane));
}

// The hash of the leaf; by one thread.
CROSSMESH_DEVICE inline uint64_t FinishLeafHash(int leaf_bytes, const LeafHash& hash) {
  if (leaf_bytes > kXxh3ShortMax) return Xxh3Merge(hash.lanes, leaf_bytes, hash.secret);
  const auto* tail = reinterpret_cast<const std::byte*>(hash.tail);
  return Xxh3Short(tail, leaf_bytes, hash.secret);
}

}  // namespace crossmesh
