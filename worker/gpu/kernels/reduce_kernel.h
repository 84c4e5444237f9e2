// The bodies of the kernels that reduce summands; pack_kernel.h says what a body is.

#pragma once

#include "common/numbers/reduction_rules.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>

namespace crossmesh {

// Of elements of one type, by its rules. Summands are taken in order, each element by one thread,
// so results are those of common/numbers/element_reducer.h, bit for bit.
template <class Rules>
struct ReduceKernel {
  using Arguments = ReduceArguments;
  struct Shared {};
  struct Registers {};
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;

  template <int phase>
  CROSSMESH_DEVICE static void Run(KernelPlace place, const Arguments& arguments,
                                   Shared& /*shared*/, Registers& /*registers*/) {
    const ReductionSegment& segment = arguments.segments[FindLast<&ReductionSegment::first_block>(
        arguments.segments, 0, arguments.segment_count, place.block)];
    const int64_t begin = int64_t{place.block - segment.first_block} * kReducedBytesOfBlock;
    const Share share = {.thread = place.thread,
                         .begin = begin,
                         .end = Min(begin + kReducedBytesOfBlock, segment.bytes)};
    switch (arguments.kind) {
      case KernelReduction::kSum:
        return ReduceShare<typename Rules::Sum>(share, segment, arguments.divisor);
      case KernelReduction::kMin:
        return ReduceShare<typename Rules::Min>(share, segment, arguments.divisor);
      case KernelReduction::kMax:
        return ReduceShare<typename Rules::Max>(share, segment, arguments.divisor);
    }
  }

 private:
  // Elements that a thread has under way at a time, so that the memory has enough to do.
  static constexpr int kAtOnce = 4;

  // Every kThreads-th element of a block's.
  struct Share {
    int thread;
    int64_t begin;  // of the block, in bytes of the segment
    int64_t end;
  };

  template <class Rule>
  CROSSMESH_DEVICE static void ReduceShare(const Share& share, const ReductionSegment& segment,
                                           int64_t divisor) {
    constexpr int64_t kItemBytes = sizeof(typename Rule::Word);
    constexpr int64_t kStride = kThreads * kItemBytes;
    for (int64_t first = share.begin + share.thread * kItemBytes; first < share.end;
         first += kAtOnce * kStride) {
      typename Rule::State states[kAtOnce] = {};
      for (int32_t summand = 0; summand < segment.summands; ++summand) {
        const uint64_t from = segment.address + summand * segment.distance_bytes;
        CROSSMESH_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int64_t at = first + i * kStride;
          if (at >= share.end) continue;
          const auto read = Rule::Read(LoadAligned<typename Rule::Word>(from + at));
          states[i] = summand == 0 ? read : Rule::Join(states[i], read);
        }
      }
      CROSSMESH_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t at = first + i * kStride;
        if (at < share.end) Store<Rule>(states[i], at, segment, divisor);
      }
    }
  }

  template <class Rule>
  CROSSMESH_DEVICE static void Store(typename Rule::State state, int64_t at,
                                     const ReductionSegment& segment, int64_t divisor) {
    if constexpr (Rule::kIsSum) {
      if (divisor != 1) state = Rule::Divide(state, divisor);
    }
    const int64_t row = at / segment.row_bytes;
    const int64_t column = at - row * segment.row_bytes;
    StoreAligned(segment.to_address + row * segment.to_pitch_bytes + column, Rule::Write(state));
  }
};

}  // namespace crossmesh
