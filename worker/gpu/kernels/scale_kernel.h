// The body of the kernel that finds the scale of each block of 128 x 128 elements of bf16, which
// are packed as fp8; pack_kernel.h says what a body is.
//
// The scale is amax / 448, where amax is the largest finite magnitude of the block and at least
// 2^-100, so that a block of zeros has a scale as well. What elements are multiplied with is the
// factor, 448 / amax.

#pragma once

#include "common/numbers/number_formats.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/element_scaling.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/pieces_in_memory.h"

#include <cstdint>

namespace crossmesh {

struct ScaleKernel {
  using Arguments = ScaleArguments;
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 3;

 private:
  static constexpr int kElementBytes = sizeof(Bf16::Word);
  static constexpr int kElementsOfPiece = kPieceBytes / kElementBytes;
  static constexpr int kThreadsOfRow = kScaleBlock / kElementsOfPiece;
  static constexpr int kRowsAtOnce = kThreads / kThreadsOfRow;
  static constexpr int kPiecesOfThread = kScaleBlock / kRowsAtOnce;

 public:
  // Where the block is.
  struct Registers {
    const ScaledMatrix* matrix;
    int64_t block_row;
    int64_t block_column;
  };
  // Largest finite magnitudes, as bits of bf16.
  struct Shared {
    uint32_t thread_peaks[kThreads];
    uint32_t peaks[kRowsAtOnce];
  };

  template <int phase>
  CROSSMESH_DEVICE static void Run(KernelPlace place, const Arguments& arguments, Shared& shared,
                                   Registers& registers) {
    if constexpr (phase == 0) {
      FindBlock(place, arguments, registers);
      shared.thread_peaks[place.thread] = ThreadPeak(place.thread, registers);
    }
    if constexpr (phase == 1) CombinePeaks(place.thread, shared);
    if constexpr (phase == 2) {
      if (place.thread == 0) Finish(shared, registers);
    }
  }

 private:
  CROSSMESH_DEVICE static void FindBlock(KernelPlace place, const Arguments& arguments,
                                         Registers& registers) {
    const int32_t index = FindLast<&ScaledMatrix::first_block>(arguments.matrices, 0,
                                                               arguments.matrix_count, place.block);
    registers.matrix = &arguments.matrices[index];
    const int64_t block = place.block - registers.matrix->first_block;
    const int64_t blocks_of_row = ScaleBlocks(registers.matrix->columns);
    registers.block_row = block / blocks_of_row;
    registers.block_column = block - registers.block_row * blocks_of_row;
  }

  // Of a piece of every kRowsAtOnce-th row of the block.
  CROSSMESH_DEVICE static uint32_t ThreadPeak(int thread, const Registers& registers) {
    const ScaledMatrix& matrix = *registers.matrix;
    const int64_t row = registers.block_row * kScaleBlock + thread / kThreadsOfRow;
    const int64_t column =
        registers.block_column * kScaleBlock + thread % kThreadsOfRow * kElementsOfPiece;
    // Elements of each piece: fewer at the end of a row, or none.
    const auto width =
        static_cast<int>(Max<int64_t>(0, Min<int64_t>(kElementsOfPiece, matrix.columns - column)));
    const int64_t rows = width > 0 ? matrix.rows - row : 0;
    const uint64_t address = matrix.address + row * matrix.pitch_bytes + column * kElementBytes;
    const uint64_t step_bytes = kRowsAtOnce * matrix.pitch_bytes;
    const bool is_aligned = (address | step_bytes) % kPieceBytes == 0;
    // All are on their way before one is looked at.
    Uint128 pieces[kPiecesOfThread];
    CROSSMESH_UNROLL
    for (int i = 0; i < kPiecesOfThread; ++i) {
      pieces[i] = 0;
      const int rows_before = i * kRowsAtOnce;
      if (rows_before >= rows) continue;
      const uint64_t from = address + i * step_bytes;
      if (width < kElementsOfPiece) {
        pieces[i] = CopiedBytes::LoadPart(from, width * kElementBytes);
      } else if (is_aligned) {
        pieces[i] = CopiedBytes::LoadAlignedPiece(from);
      } else {
        pieces[i] = CopiedBytes::LoadPiece(from);
      }
    }
    return PeakOf(pieces);
  }

  CROSSMESH_DEVICE static uint32_t PeakOf(const Uint128 (&pieces)[kPiecesOfThread]) {
    uint32_t peak = 0;
    CROSSMESH_UNROLL
    for (int i = 0; i < kPiecesOfThread * kElementsOfPiece; ++i) {
      const Uint128 piece = pieces[i / kElementsOfPiece];
      const auto magnitude =
          static_cast<uint32_t>(piece >> (8 * kElementBytes * (i % kElementsOfPiece))) & 0x7FFF;
      peak = Max(peak, magnitude < (kF32Infinity >> 16) ? magnitude : 0);
    }
    return peak;
  }

  // Leaves as many as rows are taken at once.
  CROSSMESH_DEVICE static void CombinePeaks(int thread, Shared& shared) {
    if (thread >= kRowsAtOnce) return;
    uint32_t peak = 0;
    for (int i = thread; i < kThreads; i += kRowsAtOnce) peak = Max(peak, shared.thread_peaks[i]);
    shared.peaks[thread] = peak;
  }

  CROSSMESH_DEVICE static void Finish(const Shared& shared, const Registers& registers) {
    uint32_t peak = 0;
    for (const uint32_t other : shared.peaks) peak = Max(peak, other);
    const float amax = Max(FloatOf(Bf16::Widen(static_cast<uint16_t>(peak))), kAmaxMin);
    const ScaledMatrix& matrix = *registers.matrix;
    const int64_t offset_bytes = registers.block_row * matrix.scales_pitch_bytes +
                                 registers.block_column * static_cast<int64_t>(sizeof(float));
    StoreAligned(matrix.scales_address + offset_bytes, amax / kFp8Max);
    StoreAligned(matrix.factors_address + offset_bytes, kFp8Max / amax);
  }
};

}  // namespace crossmesh
