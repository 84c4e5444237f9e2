// What kernels are given: plain structs, the same on host and GPU. A kernel takes one struct by
// value; the lists in it are in memory that the GPU reads.

#pragma once

#include <cstddef>
#include <cstdint>

namespace crossmesh {

// Which of these structs a kernel takes.
enum class KernelParameter : uint8_t { kCopy, kPack, kScale };

// Rows of memory at a constant distance that follow each other in packed order. In a list, boxes
// are in packed order, each beginning where the one before it ends.
struct KernelBox {
  uint64_t address = 0;  // of the first row; where elements are converted, a multiple of their size
  int64_t rows = 0;      // at least 1
  int64_t row_bytes = 0;      // in memory, at least 1
  int64_t pitch_bytes = 0;    // from one row to the next
  int64_t packed_offset = 0;  // of the first byte, in the class
  // Where elements are quantized: the f32 factor of the scale block that every row begins in, at
  // the block's first column. Those of the blocks beside it follow.
  uint64_t factors_address = 0;
};

// Packs, unpacks or only hashes a range of the packed bytes of a class: one block of threads for
// each leaf of 64 KiB, counted from the beginning of the range.
struct PackArguments {
  static constexpr KernelParameter kParameter = KernelParameter::kPack;

  const KernelBox* boxes = nullptr;  // they cover the range, and may cover more
  int32_t box_count = 0;
  int64_t begin = 0;
  int64_t end = 0;
  // The bytes of the range, at a multiple of 16. Null when packing: nothing is written.
  std::byte* packed = nullptr;
  // One for each leaf: XXH3-64 of its packed bytes. After unpacking, of what the boxes then hold.
  // Null: nothing is hashed.
  uint64_t* leaf_hashes = nullptr;
  // When unpacking: the hashes of the range's leaves that came with its bytes, and where they are
  // copied to. Null: nothing is copied.
  const uint64_t* root_hashes = nullptr;
  uint64_t* root_hashes_to = nullptr;
};

// Copies a range of the packed bytes of a class from boxes to others of the same GPU, which do not
// overlap them: one block of threads for each leaf, as above. Both lists cover the range. Where
// elements are converted, the destinations have them as they are packed, and nothing is hashed.
struct CopyArguments {
  static constexpr KernelParameter kParameter = KernelParameter::kCopy;

  const KernelBox* sources = nullptr;
  const KernelBox* destinations = nullptr;
  int32_t source_count = 0;
  int32_t destination_count = 0;
  int64_t begin = 0;
  int64_t end = 0;
  // One for each leaf: XXH3-64 of what was read, and of what the destinations then hold. Null:
  // nothing is hashed.
  uint64_t* source_hashes = nullptr;
  uint64_t* destination_hashes = nullptr;
};

// A matrix of bf16 with one f32 scale for each block of 128 x 128, and one factor: what elements
// are multiplied with where they are packed as fp8. Blocks at the end of a row or column of blocks
// may be smaller.
struct ScaledMatrix {
  uint64_t address = 0;  // a multiple of 2
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t pitch_bytes = 0;
  uint64_t scales_address = 0;     // of the first block's, a multiple of 4
  uint64_t factors_address = 0;    // the same of factors
  int64_t scales_pitch_bytes = 0;  // from one row of blocks to the next; that of factors as well
  int64_t first_block = 0;         // number of blocks in the matrices before
};

// Finds the scales and factors of matrices: one block of threads for each scale block.
struct ScaleArguments {
  static constexpr KernelParameter kParameter = KernelParameter::kScale;

  const ScaledMatrix* matrices = nullptr;
  int32_t matrix_count = 0;
};

}  // namespace crossmesh
