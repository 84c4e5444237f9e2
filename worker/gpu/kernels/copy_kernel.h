// The bodies of the kernels that copy boxes to other boxes; pack_kernel.h says what a body is.

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

// What a block of threads shares of the leaf that it copies.
struct CopiedLeaf {
  PackedLeaf leaf;
  int64_t hash_index;  // in both lists
  LeafBoxRange sources;
  LeafBoxRange destinations;
};

// Four warps find it: two for each side.
CROSSMESH_DEVICE inline void FindCopiedLeaf(int thread, int32_t block,
                                            const CopyArguments& arguments, CopiedLeaf& found) {
  const bool is_of_source = FindsLeafBoxes(thread);
  const int finder = is_of_source ? thread : thread - 2 * kWarpThreads;
  if (!FindsLeafBoxes(finder)) return;
  const CopySegment& segment = SegmentOf(arguments.segments, arguments.segment_count, block);
  const PackedLeaf leaf = LeafOf(segment, block);
  if (!is_of_source) {
    FindLeafBoxes(finder, leaf,
                  {arguments.destinations, segment.first_destination, segment.destination_end},
                  found.destinations);
    return;
  }
  if (finder == 0) {
    found.leaf = leaf;
    found.hash_index = segment.first_hash + leaf.number;
  }
  FindLeafBoxes(finder, leaf, {arguments.sources, segment.first_source, segment.source_end},
                found.sources);
}

// Where a thread's share of the leaf goes.
CROSSMESH_DEVICE inline BoxCursor<CopiedBytes> DestinationOf(LeafShare share,
                                                             const CopyArguments& arguments,
                                                             const CopiedLeaf& copied) {
  // A share that begins past the end of a short leaf has no bytes, and needs no place for them.
  const int64_t position = copied.leaf.begin + Min(share.begin, copied.leaf.bytes - 1);
  return {arguments.destinations, copied.destinations.first, copied.destinations.end, position};
}

}  // namespace internal

// Read once and written once. What is hashed of the destinations is read again from them, so that
// the hash is of what arrived.
struct CopyKernel {
  using Arguments = CopyArguments;
  // Hashes of both sides, so that they are combined at the same time.
  struct Shared {
    LeafHash source_hash;
    LeafHash destination_hash;
    internal::CopiedLeaf copied;
  };
  struct Registers {};
  static constexpr int kThreads = kLeafThreads;
  static constexpr int kPhases = 5;

  template <int phase>
  CROSSMESH_DEVICE static void Run(KernelPlace place, const Arguments& arguments, Shared& shared,
                                   Registers& /*registers*/) {
    if constexpr (phase == 0) Prepare(place, arguments, shared);
    if constexpr (phase == 1) CopyShare(place, arguments, shared);
    if constexpr (phase == 2) {
      if (arguments.destination_hashes == nullptr) return;
      SumShare(LeafShare(place.thread), shared.copied.leaf,
               shared.copied.destinations.Of(arguments.destinations), shared.destination_hash);
    }
    if constexpr (phase == 3) Combine(place, arguments, shared);
    if constexpr (phase == 4) Finish(place, arguments, shared);
  }

 private:
  // Of the threads that combine and finish the destination's hash, in another warp than those of
  // the source's.
  static constexpr int kDestinationThread = kWarpThreads;

  CROSSMESH_DEVICE static void Prepare(KernelPlace place, const Arguments& arguments,
                                       Shared& shared) {
    PrepareLeafHash(place.thread, shared.source_hash);
    PrepareLeafHash(place.thread, shared.destination_hash);
    internal::FindCopiedLeaf(place.thread - 2 * kWarpThreads, place.block, arguments,
                             shared.copied);
  }

  CROSSMESH_DEVICE static void CopyShare(KernelPlace place, const Arguments& arguments,
                                         Shared& shared) {
    const PackedLeaf leaf = shared.copied.leaf;
    const LeafShare share(place.thread);
    LeafSum sum(leaf.bytes, share);
    BoxCursor<CopiedBytes> to = internal::DestinationOf(share, arguments, shared.copied);
    ReadShare<CopiedBytes>(share, leaf, shared.copied.sources.Of(arguments.sources),
                           [&](int stripe, Uint128 piece, int bytes) {
                             if (arguments.source_hashes != nullptr)
                               sum.Add(stripe, piece, shared.source_hash);
                             to.Store(piece, bytes);
                             to.Advance(kXxh3StripeBytes - bytes);
                           });
    if (arguments.source_hashes != nullptr) sum.Finish(shared.source_hash);
  }

  CROSSMESH_DEVICE static void Combine(KernelPlace place, const Arguments& arguments,
                                       Shared& shared) {
    const int bytes = shared.copied.leaf.bytes;
    if (place.thread < kDestinationThread) {
      if (arguments.source_hashes == nullptr) return;
      CombineLeafHash(place.thread, bytes, shared.source_hash);
    } else if (arguments.destination_hashes != nullptr) {
      CombineLeafHash(place.thread - kDestinationThread, bytes, shared.destination_hash);
    }
  }

  CROSSMESH_DEVICE static void Finish(KernelPlace place, const Arguments& arguments,
                                      Shared& shared) {
    const int bytes = shared.copied.leaf.bytes;
    const int64_t index = shared.copied.hash_index;
    if (place.thread == 0 && arguments.source_hashes != nullptr) {
      arguments.source_hashes[index] = FinishLeafHash(bytes, shared.source_hash);
    }
    if (place.thread == kDestinationThread && arguments.destination_hashes != nullptr) {
      arguments.destination_hashes[index] = FinishLeafHash(bytes, shared.destination_hash);
    }
  }
};

// Copies elements converted. Hashes nothing: sums of hashes beside elements of two sizes take more
// registers than a thread has.
template <class Elements>
struct ConvertKernel {
  using Arguments = CopyArguments;
  using Shared = internal::CopiedLeaf;
  struct Registers {};
  static constexpr int kThreads = kLeafThreads;
  static constexpr int kPhases = 2;

  template <int phase>
  CROSSMESH_DEVICE static void Run(KernelPlace place, const Arguments& arguments, Shared& shared,
                                   Registers& /*registers*/) {
    if constexpr (phase == 0) {
      internal::FindCopiedLeaf(place.thread, place.block, arguments, shared);
    }
    if constexpr (phase == 1) {
      const LeafShare share(place.thread);
      BoxCursor<CopiedBytes> to = internal::DestinationOf(share, arguments, shared);
      ReadShare<Elements>(share, shared.leaf, shared.sources.Of(arguments.sources),
                          [&](int /*stripe*/, Uint128 piece, int bytes) {
                            to.Store(piece, bytes);
                            to.Advance(kXxh3StripeBytes - bytes);
                          });
    }
  }
};

}  // namespace crossmesh
