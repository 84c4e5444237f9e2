// The body of the kernel that packs bf16 as fp8 with a scale for each block of 128 x 128 elements;
// pack_kernel.h says what a body is.
//
// The scale is amax / 448, where amax is the largest finite magnitude of the block and at least
// 2^-100, so that a block of zeros has a scale as well. An element becomes its product with
// (448 / amax), rounded to f32 and then to fp8; infinities saturate, NaNs stay.

#pragma once

#include "common/numbers/number_formats.h"
#include "worker/gpu/kernels/box_cursor.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/element_scaling.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/pieces_in_memory.h"

#include <cstdint>

namespace crossmesh {

struct QuantizeKernel {
  using Arguments = QuantizeArguments;
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 3;

 private:
  static constexpr int kElementBytes = sizeof(Bf16::Word);
  static constexpr int kElementsOfPiece = kPieceBytes / kElementBytes;
  static constexpr int kThreadsOfRow = kScaleBlock / kElementsOfPiece;
  static constexpr int kRowsAtOnce = kThreads / kThreadsOfRow;
  static constexpr int kPiecesOfThread = kScaleBlock / kRowsAtOnce;

 public:
  // A thread has a piece of every kRowsAtOnce-th row of the block.
  struct Registers {
    const QuantizedBox* box;
    int64_t block_row;
    int64_t block_column;
    Uint128 pieces[kPiecesOfThread];
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
      Load(place.thread, registers);
      shared.thread_peaks[place.thread] = PeakOf(registers);
    }
    if constexpr (phase == 1) CombinePeaks(place.thread, shared);
    if constexpr (phase == 2) Convert(place.thread, arguments, shared, registers);
  }

 private:
  CROSSMESH_DEVICE static void FindBlock(KernelPlace place, const Arguments& arguments,
                                         Registers& registers) {
    const int64_t block = arguments.first_block + place.block;
    int32_t index = 0;
    for (int32_t end = arguments.box_count; end - index > 1;) {
      const int32_t middle = index + (end - index) / 2;
      (arguments.boxes[middle].first_block <= block ? index : end) = middle;
    }
    registers.box = &arguments.boxes[index];
    const int64_t block_of_box = block - registers.box->first_block;
    const int64_t blocks_of_row = ScaleBlocks(registers.box->columns);
    registers.block_row = block_of_box / blocks_of_row;
    registers.block_column = block_of_box - registers.block_row * blocks_of_row;
  }

  // Of the thread's first piece, in the box.
  CROSSMESH_DEVICE static int64_t RowOf(int thread, const Registers& registers) {
    return registers.block_row * kScaleBlock + thread / kThreadsOfRow;
  }
  // Of the first element of all its pieces.
  CROSSMESH_DEVICE static int64_t ColumnOf(int thread, const Registers& registers) {
    const int in_block = thread % kThreadsOfRow * kElementsOfPiece;
    return registers.block_column * kScaleBlock + in_block;
  }
  // Elements of each of its pieces: fewer at the end of a row, or none.
  CROSSMESH_DEVICE static int WidthOf(int64_t column, const QuantizedBox& box) {
    return static_cast<int>(Max<int64_t>(0, Min<int64_t>(kElementsOfPiece, box.columns - column)));
  }

  CROSSMESH_DEVICE static void Load(int thread, Registers& registers) {
    const QuantizedBox& box = *registers.box;
    const int64_t row = RowOf(thread, registers);
    const int64_t column = ColumnOf(thread, registers);
    const int width = WidthOf(column, box);
    const int64_t rows = width > 0 ? box.rows - row : 0;
    const uint64_t address = box.address + row * box.pitch_bytes + column * kElementBytes;
    const uint64_t step_bytes = kRowsAtOnce * box.pitch_bytes;
    const bool aligned = (address | step_bytes) % kPieceBytes == 0;
    CROSSMESH_UNROLL
    for (int i = 0; i < kPiecesOfThread; ++i) {
      Uint128& piece = registers.pieces[i];
      piece = 0;
      const int rows_before = i * kRowsAtOnce;
      if (rows_before >= rows) continue;
      const uint64_t from = address + i * step_bytes;
      if (width < kElementsOfPiece) {
        piece = CopiedBytes::LoadPart(from, width * kElementBytes);
      } else if (aligned) {
        piece = CopiedBytes::LoadAlignedPiece(from);
      } else {
        piece = CopiedBytes::LoadPiece(from);
      }
    }
  }

  CROSSMESH_DEVICE static uint32_t PeakOf(const Registers& registers) {
    uint32_t peak = 0;
    CROSSMESH_UNROLL
    for (int i = 0; i < kPiecesOfThread * kElementsOfPiece; ++i) {
      const Uint128 piece = registers.pieces[i / kElementsOfPiece];
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

  CROSSMESH_DEVICE static void Convert(int thread, const Arguments& arguments, const Shared& shared,
                                       const Registers& registers) {
    uint32_t peak = 0;
    for (const uint32_t other : shared.peaks) peak = Max(peak, other);
    const float amax = Max(FloatOf(Bf16::Widen(static_cast<uint16_t>(peak))), kAmaxMin);
    const QuantizedBox& box = *registers.box;
    const float factor = kFp8Max / amax;
    if (thread == 0) {
      const int64_t offset_bytes = registers.block_row * box.scales_pitch_bytes +
                                   registers.block_column * static_cast<int64_t>(sizeof(float));
      StoreAligned(box.scales_address + offset_bytes, amax / kFp8Max);
      if (box.factors_address != 0) StoreAligned(box.factors_address + offset_bytes, factor);
    }
    if (arguments.packed == nullptr) return;
    const int64_t row = RowOf(thread, registers);
    const int64_t column = ColumnOf(thread, registers);
    const int width = WidthOf(column, box);
    const int64_t position = box.packed_offset + row * box.columns + column;
    const int64_t step = kRowsAtOnce * box.columns;
    CROSSMESH_UNROLL
    for (int i = 0; i < kPiecesOfThread; ++i) {
      const int rows_before = i * kRowsAtOnce;
      if (rows_before >= box.rows - row) break;
      Store(arguments, position + i * step, QuantizePiece(registers.pieces[i], factor), width);
    }
  }

  CROSSMESH_DEVICE static uint64_t QuantizePiece(Uint128 piece, float factor) {
    uint32_t halves[2] = {};
    CROSSMESH_UNROLL
    for (int i = 0; i < kElementsOfPiece; ++i) {
      const auto word = static_cast<Bf16::Word>(piece >> (8 * kElementBytes * i));
      const float element = FloatOf(Bf16::Widen(word));
      halves[i / 4] |= uint32_t{Fp8::Narrow(BitsOf(element * factor))} << (8 * (i % 4));
    }
    return uint64_t{halves[1]} << 32 | halves[0];
  }

  // Writes what of the `bytes` packed bytes from `position` on is in the range.
  CROSSMESH_DEVICE static void Store(const Arguments& arguments, int64_t position, uint64_t word,
                                     int bytes) {
    const auto skipped = static_cast<int>(Max<int64_t>(0, arguments.begin - position));
    const auto end = static_cast<int>(Min<int64_t>(bytes, arguments.end - position));
    if (skipped >= end) return;
    const std::byte* to = arguments.packed + (position + skipped - arguments.begin);
    StorePart(reinterpret_cast<uint64_t>(to), word >> (8 * skipped), end - skipped);
  }
};

}  // namespace crossmesh
