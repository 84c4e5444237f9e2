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

// Read once and written once. What is hashed of the destinations is read again from them, so that
// the hash is of what arrived.
struct CopyKernel {
  using Arguments = CopyArguments;
  // Hashes of both sides, so that they are combined at the same time.
  struct Shared {
    LeafHash source_hash;
    LeafHash destination_hash;
    LeafBoxRange sources;
    LeafBoxRange destinations;
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
      SumShare(LeafShare(place.thread), LeafOf(place, arguments),
               shared.destinations.Of(arguments.destinations), shared.destination_hash);
    }
    if constexpr (phase == 3) Combine(place, arguments, shared);
    if constexpr (phase == 4) Finish(place, arguments, shared);
  }

 private:
  // Of the threads that combine and finish the destination's hash, in another warp than those of
  // the source's.
  static constexpr int kDestinationThread = kWarpThreads;

  CROSSMESH_DEVICE static PackedLeaf LeafOf(KernelPlace place, const Arguments& arguments) {
    return PackedLeaf(place.block, arguments.begin, arguments.end);
  }

  CROSSMESH_DEVICE static void Prepare(KernelPlace place, const Arguments& arguments,
                                       Shared& shared) {
    const PackedLeaf leaf = LeafOf(place, arguments);
    PrepareLeafHash(place.thread, shared.source_hash);
    PrepareLeafHash(place.thread, shared.destination_hash);
    FindLeafBoxes(place.thread - 2 * kWarpThreads, leaf,
                  {arguments.sources, 0, arguments.source_count}, shared.sources);
    FindLeafBoxes(place.thread - 4 * kWarpThreads, leaf,
                  {arguments.destinations, 0, arguments.destination_count}, shared.destinations);
  }

  CROSSMESH_DEVICE static void CopyShare(KernelPlace place, const Arguments& arguments,
                                         Shared& shared) {
    const PackedLeaf leaf = LeafOf(place, arguments);
    const LeafShare share(place.thread);
    LeafSum sum(leaf.bytes, share);
    // A share that begins past the end of a short leaf has no bytes, and needs no place for them.
    const int64_t position = leaf.begin + Min(share.begin, leaf.bytes - 1);
    BoxCursor<CopiedBytes> to(arguments.destinations, shared.destinations.first,
                              shared.destinations.end, position);
    ReadShare<CopiedBytes>(share, leaf, shared.sources.Of(arguments.sources),
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
    const int bytes = LeafOf(place, arguments).bytes;
    if (place.thread < kDestinationThread) {
      if (arguments.source_hashes == nullptr) return;
      CombineLeafHash(place.thread, bytes, shared.source_hash);
    } else if (arguments.destination_hashes != nullptr) {
      CombineLeafHash(place.thread - kDestinationThread, bytes, shared.destination_hash);
    }
  }

  CROSSMESH_DEVICE static void Finish(KernelPlace place, const Arguments& arguments,
                                      Shared& shared) {
    const int bytes = LeafOf(place, arguments).bytes;
    if (place.thread == 0 && arguments.source_hashes != nullptr) {
      arguments.source_hashes[place.block] = FinishLeafHash(bytes, shared.source_hash);
    }
    if (place.thread == kDestinationThread && arguments.destination_hashes != nullptr) {
      arguments.destination_hashes[place.block] = FinishLeafHash(bytes, shared.destination_hash);
    }
  }
};

// Copies elements converted. Hashes nothing: sums of hashes beside elements of two sizes take more
// registers than a thread has.
template <class Elements>
struct ConvertKernel {
  using Arguments = CopyArguments;
  struct Shared {
    LeafBoxRange sources;
    LeafBoxRange destinations;
  };
  struct Registers {};
  static constexpr int kThreads = kLeafThreads;
  static constexpr int kPhases = 2;

  template <int phase>
  CROSSMESH_DEVICE static void Run(KernelPlace place, const Arguments& arguments, Shared& shared,
                                   Registers& /*registers*/) {
    const PackedLeaf leaf(place.block, arguments.begin, arguments.end);
    if constexpr (phase == 0) {
      FindLeafBoxes(place.thread, leaf, {arguments.sources, 0, arguments.source_count},
                    shared.sources);
      FindLeafBoxes(place.thread - 2 * kWarpThreads, leaf,
                    {arguments.destinations, 0, arguments.destination_count}, shared.destinations);
    }
    if constexpr (phase == 1) {
      const LeafShare share(place.thread);
      // As in CopyKernel.
      const int64_t position = leaf.begin + Min(share.begin, leaf.bytes - 1);
      BoxCursor<CopiedBytes> to(arguments.destinations, shared.destinations.first,
                                shared.destinations.end, position);
      ReadShare<Elements>(share, leaf, shared.sources.Of(arguments.sources),
                          [&](int /*stripe*/, Uint128 piece, int bytes) {
                            to.Store(piece, bytes);
                            to.Advance(kXxh3StripeBytes - bytes);
                          });
    }
  }
};

}  // namespace crossmesh
