// A leaf of packed bytes that lies in boxes: how a block of threads finds it, and how each thread
// reads its share.

#pragma once

#include "worker/gpu/kernels/box_cursor.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/pieces_in_memory.h"

#include <cstdint>

namespace crossmesh {

// Stripes of a thread that are loaded before the first is used, so that the memory has enough to
// do; fewer where factors take registers as well.
template <class Elements>
inline constexpr int kStripesAtOnce = Elements::Scaling::kHasFactor ? 2 : 4;

// The leaf of one block of threads: bytes of a segment of the launch. The block shares it.
struct PackedLeaf {
  int64_t begin;   // in the class
  int32_t number;  // in the segment
  int32_t bytes;
};

// The segment that a block of threads is of.
template <class Segment>
CROSSMESH_DEVICE inline const Segment& SegmentOf(const Segment* segments, int32_t count,
                                                 int32_t block) {
  return segments[FindLast<&Segment::first_block>(segments, 0, count, block)];
}

template <class Segment>
CROSSMESH_DEVICE inline PackedLeaf LeafOf(const Segment& segment, int32_t block) {
  const int32_t number = block - segment.first_block;
  const int64_t begin = segment.begin + int64_t{number} * kLeafBytes;
  return {.begin = begin,
          .number = number,
          .bytes = static_cast<int32_t>(Min<int64_t>(segment.end - begin, kLeafBytes))};
}

// The boxes of a list that a leaf lies in.
struct LeafBoxes {
  const KernelBox* boxes;  // the list
  int32_t first;
  int32_t end;
};

// What a block of threads shares of them.
struct LeafBoxRange {
  CROSSMESH_DEVICE LeafBoxes Of(const KernelBox* boxes) const { return {boxes, first, end}; }
  int32_t first;
  int32_t end;
};

// The first threads of two warps find a leaf's boxes, so that they search side by side: is this one
// of them? `thread` is counted from the first.
CROSSMESH_DEVICE inline bool FindsLeafBoxes(int thread) {
  return thread == 0 || thread == kWarpThreads;
}

// By one of these threads.
CROSSMESH_DEVICE inline void FindLeafBoxes(int thread, const PackedLeaf& leaf,
                                           const LeafBoxes& list, LeafBoxRange& found) {
  if (thread == 0) {
    found.first = FindBox(list.boxes, list.first, list.end, leaf.begin);
  } else {
    const int64_t last = leaf.begin + leaf.bytes - 1;
    found.end = FindBox(list.boxes, list.first, list.end, last) + 1;
  }
}

// A thread's share of a leaf as it is in the boxes, a few stripes at a time.
template <class Elements>
class StripeLoader {
 public:
  // `left` is how many bytes the leaf has from the share's beginning on.
  CROSSMESH_DEVICE StripeLoader(const BoxCursor<Elements>& cursor, int left)
      : cursor_(cursor), left_(left) {}

  CROSSMESH_DEVICE void LoadNext(Uint128 (&pieces)[kStripesAtOnce<Elements>]) {
    if (!LoadWhole(pieces)) LoadOneByOne(pieces);
    left_ -= kAtOnce * kXxh3StripeBytes;
  }

 private:
  static constexpr int kAtOnce = kStripesAtOnce<Elements>;

  // False, and nothing done, unless every piece lies in one row and is scaled alike.
  CROSSMESH_DEVICE bool LoadWhole(Uint128 (&pieces)[kAtOnce]) {
    if (left_ < (kAtOnce - 1) * kXxh3StripeBytes + kPieceBytes) return false;
    BoxCursor<Elements> cursor = cursor_;
    uint64_t addresses[kAtOnce];
    typename Elements::Scaling scalings[kAtOnce];
    uint64_t all_bits = 0;
    bool whole = true;
    CROSSMESH_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      addresses[i] = cursor.address();
      scalings[i] = cursor.scaling();
      all_bits |= addresses[i];
      whole = whole && cursor.alike_left() >= kPieceBytes;
      cursor.Advance(kXxh3StripeBytes);
    }
    if (!whole) return false;
    if (all_bits % Elements::kAlignment == 0) {
      CROSSMESH_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        pieces[i] = Elements::LoadAlignedPiece(addresses[i], scalings[i]);
      }
    } else {
      CROSSMESH_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        pieces[i] = Elements::LoadPiece(addresses[i], scalings[i]);
      }
    }
    cursor_ = cursor;
    return true;
  }

  CROSSMESH_DEVICE void LoadOneByOne(Uint128 (&pieces)[kAtOnce]) {
    CROSSMESH_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int bytes = Max(0, Min(kPieceBytes, left_ - i * kXxh3StripeBytes));
      pieces[i] = cursor_.Load(bytes);
      cursor_.Advance(kXxh3StripeBytes - bytes);
    }
  }

  BoxCursor<Elements> cursor_;
  int left_;
};

// Reads a thread's share of a leaf, and gives each piece that has bytes to `take`, in order:
//   take(int stripe, Uint128 piece, int bytes)
template <class Elements, class Take>
CROSSMESH_DEVICE inline void ReadShare(LeafShare share, const PackedLeaf& leaf,
                                       const LeafBoxes& boxes, Take take) {
  const int left = leaf.bytes - share.begin;
  if (left <= 0) return;
  StripeLoader<Elements> loader(
      BoxCursor<Elements>(boxes.boxes, boxes.first, boxes.end, leaf.begin + share.begin), left);
  constexpr int kAtOnce = kStripesAtOnce<Elements>;
  for (int first = 0; first < kStripesOfBlock; first += kAtOnce) {
    Uint128 pieces[kAtOnce];
    loader.LoadNext(pieces);
    CROSSMESH_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int bytes = Min(kPieceBytes, left - (first + i) * kXxh3StripeBytes);
      if (bytes <= 0) break;
      take(first + i, pieces[i], bytes);
    }
  }
}

// Reads a thread's share of a leaf, and only sums it up.
CROSSMESH_DEVICE inline void SumShare(LeafShare share, const PackedLeaf& leaf,
                                      const LeafBoxes& boxes, LeafHash& hash) {
  LeafSum sum(leaf.bytes, share);
  ReadShare<CopiedBytes>(share, leaf, boxes, [&](int stripe, Uint128 piece, int /*bytes*/) {
    sum.Add(stripe, piece, hash);
  });
  sum.Finish(hash);
}

}  // namespace crossmesh
