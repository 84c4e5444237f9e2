// The bodies of the kernels that pack, unpack and hash boxes.
//
// A body is the kernel, written once for the GPU and for a host. It is cut into phases: between two
// there is a barrier of the block's threads. What a phase leaves for the next is in Shared, which
// the block shares, or in Registers, which each thread has of its own; neither is initialised. In
// kernels.cu phases are parts of a kernel; RunOnHost loops over the threads in each.

#pragma once

#include "worker/gpu/kernels/box_cursor.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/leaf_in_boxes.h"
#include "worker/gpu/kernels/pieces_in_memory.h"

#include <cstdint>

namespace crossmesh {

namespace internal {

struct PackShared {
  LeafHash hash;
  LeafBoxRange boxes;
  PackedLeaf leaf;
  int64_t packed_offset;  // of the leaf
  int64_t hash_index;     // in leaf_hashes and root_hashes_to
  int64_t root_hash_index;
};

// By one thread.
CROSSMESH_DEVICE inline void ShareLeaf(const PackSegment& segment, const PackedLeaf& leaf,
                                       PackShared& shared) {
  shared.leaf = leaf;
  shared.packed_offset = segment.packed_offset + int64_t{leaf.number} * kLeafBytes;
  shared.hash_index = segment.first_hash + leaf.number;
  shared.root_hash_index = segment.first_root_hash + leaf.number;
}

CROSSMESH_DEVICE inline void PrepareLeaf(KernelPlace place, const PackArguments& arguments,
                                         PackShared& shared) {
  PrepareLeafHash(place.thread, shared.hash);
  const int finder = place.thread - 2 * kWarpThreads;
  if (!FindsLeafBoxes(finder)) return;
  const PackSegment& segment = SegmentOf(arguments.segments, arguments.segment_count, place.block);
  const PackedLeaf leaf = LeafOf(segment, place.block);
  if (finder == 0) ShareLeaf(segment, leaf, shared);
  FindLeafBoxes(finder, leaf, {arguments.boxes, segment.first_box, segment.box_end}, shared.boxes);
}

// Reads a thread's share of a leaf in the boxes; writes it to the leaf's place if there is one;
// sums it up if hashes are wanted.
template <class Elements>
CROSSMESH_DEVICE inline void PackShare(KernelPlace place, const PackArguments& arguments,
                                       PackShared& shared) {
  const PackedLeaf leaf = shared.leaf;
  const auto packed = reinterpret_cast<uint64_t>(arguments.packed) + shared.packed_offset;
  const LeafShare share(place.thread);
  LeafSum sum(leaf.bytes, share);
  ReadShare<Elements>(share, leaf, shared.boxes.Of(arguments.boxes),
                      [&](int stripe, Uint128 piece, int bytes) {
                        if (arguments.leaf_hashes != nullptr) sum.Add(stripe, piece, shared.hash);
                        if (arguments.packed == nullptr) return;
                        const int at = share.begin + stripe * kXxh3StripeBytes;
                        StorePart(packed + at, piece, bytes);
                      });
  if (arguments.leaf_hashes != nullptr) sum.Finish(shared.hash);
}

CROSSMESH_DEVICE inline void CombineLeaf(KernelPlace place, const PackArguments& arguments,
                                         PackShared& shared) {
  if (arguments.leaf_hashes == nullptr) return;
  CombineLeafHash(place.thread, shared.leaf.bytes, shared.hash);
}

CROSSMESH_DEVICE inline void FinishLeaf(KernelPlace place, const PackArguments& arguments,
                                        PackShared& shared) {
  if (arguments.leaf_hashes == nullptr || place.thread != 0) return;
  arguments.leaf_hashes[shared.hash_index] = FinishLeafHash(shared.leaf.bytes, shared.hash);
}

}  // namespace internal

// Boxes to packed bytes, hashed on their way; or only hashed.
template <class Elements>
struct PackKernel {
  using Arguments = PackArguments;
  using Shared = internal::PackShared;
  struct Registers {};
  static constexpr int kThreads = kLeafThreads;
  static constexpr int kPhases = 4;

  template <int phase>
  CROSSMESH_DEVICE static void Run(KernelPlace place, const Arguments& arguments, Shared& shared,
                                   Registers& /*registers*/) {
    if constexpr (phase == 0) internal::PrepareLeaf(place, arguments, shared);
    if constexpr (phase == 1) internal::PackShare<Elements>(place, arguments, shared);
    if constexpr (phase == 2) internal::CombineLeaf(place, arguments, shared);
    if constexpr (phase == 3) internal::FinishLeaf(place, arguments, shared);
  }
};

// Packed bytes to boxes. What is hashed is read again from the boxes, so that the hash is of what
// arrived.
struct UnpackKernel {
  using Arguments = PackArguments;
  using Shared = internal::PackShared;
  struct Registers {};
  static constexpr int kThreads = kLeafThreads;
  static constexpr int kPhases = 5;

  template <int phase>
  CROSSMESH_DEVICE static void Run(KernelPlace place, const Arguments& arguments, Shared& shared,
                                   Registers& /*registers*/) {
    if constexpr (phase == 0) internal::PrepareLeaf(place, arguments, shared);
    if constexpr (phase == 1) WriteShare(place, arguments, shared);
    if constexpr (phase == 2) {
      if (arguments.leaf_hashes == nullptr) return;
      SumShare(LeafShare(place.thread), shared.leaf, shared.boxes.Of(arguments.boxes), shared.hash);
    }
    if constexpr (phase == 3) {
      CopyRootHash(place, arguments, shared);
      internal::CombineLeaf(place, arguments, shared);
    }
    if constexpr (phase == 4) internal::FinishLeaf(place, arguments, shared);
  }

 private:
  // By a thread that has nothing else to do while others combine hashes.
  CROSSMESH_DEVICE static void CopyRootHash(KernelPlace place, const Arguments& arguments,
                                            const Shared& shared) {
    if (arguments.root_hashes == nullptr || place.thread != kThreads - 1) return;
    arguments.root_hashes_to[shared.hash_index] = arguments.root_hashes[shared.root_hash_index];
  }

  CROSSMESH_DEVICE static void WriteShare(KernelPlace place, const Arguments& arguments,
                                          const Shared& shared) {
    const PackedLeaf leaf = shared.leaf;
    const LeafShare share(place.thread);
    const int left = leaf.bytes - share.begin;
    if (left <= 0) return;
    const uint64_t packed =
        reinterpret_cast<uint64_t>(arguments.packed) + shared.packed_offset + share.begin;
    BoxCursor<CopiedBytes> cursor(arguments.boxes, shared.boxes.first, shared.boxes.end,
                                  leaf.begin + share.begin);
    constexpr int kAtOnce = kStripesAtOnce<CopiedBytes>;
    for (int first = 0; first < kStripesOfBlock; first += kAtOnce) {
      Uint128 pieces[kAtOnce];
      CROSSMESH_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = (first + i) * kXxh3StripeBytes;
        pieces[i] = at < left ? LoadAligned<Uint128>(packed + at) : 0;
      }
      CROSSMESH_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = (first + i) * kXxh3StripeBytes;
        if (at >= left) return;
        const int bytes = Min(kPieceBytes, left - at);
        cursor.Store(pieces[i], bytes);
        cursor.Advance(kXxh3StripeBytes - bytes);
      }
    }
  }
};

}  // namespace crossmesh
