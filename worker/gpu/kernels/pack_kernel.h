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
#include "worker/gpu/kernels/pieces_in_memory.h"

#include <cstdint>

namespace crossmesh {

namespace internal {

// Stripes of a thread that are loaded before the first is used, so that the memory has enough to
// do.
inline constexpr int kStripesAtOnce = 4;

struct PackShared {
  LeafHash hash;
  int32_t first_box;  // of the leaf
  int32_t end_box;
};

// The leaf of one block of threads.
struct PackedLeaf {
  CROSSMESH_DEVICE PackedLeaf(int block, const PackArguments& arguments)
      : offset(int64_t{block} * kLeafBytes),
        begin(arguments.begin + offset),
        bytes(static_cast<int>(Min<int64_t>(arguments.end - begin, kLeafBytes))) {}
  int64_t offset;  // in the range
  int64_t begin;   // in the class
  int bytes;
};

CROSSMESH_DEVICE inline void PrepareLeaf(KernelPlace place, const PackArguments& arguments,
                                         PackShared& shared) {
  const PackedLeaf leaf(place.block, arguments);
  PrepareLeafHash(place.thread, shared.hash);
  // Two threads of different warps, so that they search side by side.
  if (place.thread == 64) {
    shared.first_box = FindBox(arguments.boxes, 0, arguments.box_count, leaf.begin);
  }
  if (place.thread == 96) {
    const int64_t last = leaf.begin + leaf.bytes - 1;
    shared.end_box = FindBox(arguments.boxes, 0, arguments.box_count, last) + 1;
  }
}

// A thread's share of a leaf as it is in the boxes, a few stripes at a time.
template <class Elements>
class StripeLoader {
 public:
  // `left` is how many bytes the leaf has from the share's beginning on.
  CROSSMESH_DEVICE StripeLoader(const BoxCursor<Elements>& cursor, int left)
      : cursor_(cursor), left_(left) {}

  CROSSMESH_DEVICE void LoadNext(Uint128 (&pieces)[kStripesAtOnce]) {
    if (!LoadWhole(pieces)) LoadOneByOne(pieces);
    left_ -= kStripesAtOnce * kXxh3StripeBytes;
  }

 private:
  // False, and nothing done, unless every piece lies in one row.
  CROSSMESH_DEVICE bool LoadWhole(Uint128 (&pieces)[kStripesAtOnce]) {
    if (left_ < (kStripesAtOnce - 1) * kXxh3StripeBytes + kPieceBytes) return false;
    BoxCursor<Elements> cursor = cursor_;
    uint64_t addresses[kStripesAtOnce];
    uint64_t all_bits = 0;
    bool whole = true;
    CROSSMESH_UNROLL
    for (int i = 0; i < kStripesAtOnce; ++i) {
      addresses[i] = cursor.address();
      all_bits |= addresses[i];
      whole = whole && cursor.row_left() >= kPieceBytes;
      cursor.Advance(kXxh3StripeBytes);
    }
    if (!whole) return false;
    if (all_bits % Elements::kAlignment == 0) {
      CROSSMESH_UNROLL
      for (int i = 0; i < kStripesAtOnce; ++i) pieces[i] = Elements::LoadAlignedPiece(addresses[i]);
    } else {
      CROSSMESH_UNROLL
      for (int i = 0; i < kStripesAtOnce; ++i) pieces[i] = Elements::LoadPiece(addresses[i]);
    }
    cursor_ = cursor;
    return true;
  }

  CROSSMESH_DEVICE void LoadOneByOne(Uint128 (&pieces)[kStripesAtOnce]) {
    CROSSMESH_UNROLL
    for (int i = 0; i < kStripesAtOnce; ++i) {
      const int bytes = Max(0, Min(kPieceBytes, left_ - i * kXxh3StripeBytes));
      pieces[i] = cursor_.Load(bytes);
      cursor_.Advance(kXxh3StripeBytes - bytes);
    }
  }

  BoxCursor<Elements> cursor_;
  int left_;
};

// Reads a thread's share of a leaf in the boxes; writes it to `packed`, the leaf's place, unless
// that is null; sums it up if hashes are wanted.
template <class Elements>
CROSSMESH_DEVICE inline void ReadShare(KernelPlace place, const PackArguments& arguments,
                                       std::byte* packed, PackShared& shared) {
  const PackedLeaf leaf(place.block, arguments);
  const LeafShare share(place.thread);
  LeafSum sum(leaf.bytes, share);
  const int left = leaf.bytes - share.begin;
  if (left > 0) {
    StripeLoader<Elements> loader(BoxCursor<Elements>(arguments.boxes, shared.first_box,
                                                      shared.end_box, leaf.begin + share.begin),
                                  left);
    for (int first = 0; first < kStripesOfBlock; first += kStripesAtOnce) {
      Uint128 pieces[kStripesAtOnce];
      loader.LoadNext(pieces);
      CROSSMESH_UNROLL
      for (int i = 0; i < kStripesAtOnce; ++i) {
        const int at = (first + i) * kXxh3StripeBytes;
        const int bytes = Min(kPieceBytes, left - at);
        if (bytes <= 0) break;
        if (arguments.leaf_hashes != nullptr) sum.Add(first + i, pieces[i], shared.hash);
        if (packed == nullptr) continue;
        StorePart(reinterpret_cast<uint64_t>(packed + share.begin + at), pieces[i], bytes);
      }
    }
  }
  if (arguments.leaf_hashes != nullptr) sum.Finish(shared.hash);
}

CROSSMESH_DEVICE inline void CombineLeaf(KernelPlace place, const PackArguments& arguments,
                                         PackShared& shared) {
  if (arguments.leaf_hashes == nullptr) return;
  CombineLeafHash(place.thread, PackedLeaf(place.block, arguments).bytes, shared.hash);
}

CROSSMESH_DEVICE inline void FinishLeaf(KernelPlace place, const PackArguments& arguments,
                                        PackShared& shared) {
  if (arguments.leaf_hashes == nullptr || place.thread != 0) return;
  const int bytes = PackedLeaf(place.block, arguments).bytes;
  arguments.leaf_hashes[place.block] = FinishLeafHash(bytes, shared.hash);
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
    if constexpr (phase == 1) {
      std::byte* packed = arguments.packed;
      if (packed != nullptr) packed += internal::PackedLeaf(place.block, arguments).offset;
      internal::ReadShare<Elements>(place, arguments, packed, shared);
    }
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
      internal::ReadShare<CopiedBytes>(place, arguments, nullptr, shared);
    }
    if constexpr (phase == 3) internal::CombineLeaf(place, arguments, shared);
    if constexpr (phase == 4) internal::FinishLeaf(place, arguments, shared);
  }

 private:
  CROSSMESH_DEVICE static void WriteShare(KernelPlace place, const Arguments& arguments,
                                          const Shared& shared) {
    using internal::kStripesAtOnce;
    const internal::PackedLeaf leaf(place.block, arguments);
    const LeafShare share(place.thread);
    const int left = leaf.bytes - share.begin;
    if (left <= 0) return;
    const auto packed = reinterpret_cast<uint64_t>(arguments.packed + leaf.offset + share.begin);
    BoxCursor<CopiedBytes> cursor(arguments.boxes, shared.first_box, shared.end_box,
                                  leaf.begin + share.begin);
    for (int first = 0; first < kStripesOfBlock; first += kStripesAtOnce) {
      Uint128 pieces[kStripesAtOnce];
      CROSSMESH_UNROLL
      for (int i = 0; i < kStripesAtOnce; ++i) {
        const int at = (first + i) * kXxh3StripeBytes;
        pieces[i] = at < left ? LoadAligned<Uint128>(packed + at) : 0;
      }
      CROSSMESH_UNROLL
      for (int i = 0; i < kStripesAtOnce; ++i) {
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
