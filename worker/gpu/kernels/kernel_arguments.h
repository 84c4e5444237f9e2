// What kernels are given: plain structs, the same on host and GPU. A kernel takes one struct by
// value; the lists in it are in memory that the GPU reads.

#pragma once

#include <cstddef>
#include <cstdint>

namespace crossmesh {

// Which of these structs a kernel takes.
enum class KernelParameter : uint8_t { kCopy, kPack, kReduce, kScale };

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

// Bytes [begin, end) of a class, as a launch packs, unpacks or only hashes them: one block of
// threads for each leaf of 64 KiB, counted from the beginning of the range. In a list, segments are
// in the order of their blocks.
struct PackSegment {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t packed_offset = 0;    // where its bytes lie in `packed`, a multiple of 16
  int64_t first_hash = 0;       // of its leaves, in `leaf_hashes` and `root_hashes_to`
  int64_t first_root_hash = 0;  // the same in `root_hashes`
  int32_t first_box = 0;        // boxes [first_box, box_end) cover the range, and may cover more
  int32_t box_end = 0;
  int32_t first_block = 0;  // of the launch: the leaves of the segments before it
};

// Packs, unpacks or only hashes segments, each of any class. What differs between segments is in
// their list, and what does not is here, where it takes no registers.
struct PackArguments {
  static constexpr KernelParameter kParameter = KernelParameter::kPack;

  const KernelBox* boxes = nullptr;  // of all classes
  const PackSegment* segments = nullptr;
  int32_t segment_count = 0;
  // At a multiple of 16. Null when packing: nothing is written.
  std::byte* packed = nullptr;
  // XXH3-64 of the packed bytes of each leaf. After unpacking, of what the boxes then hold. Null:
  // nothing is hashed.
  uint64_t* leaf_hashes = nullptr;
  // When unpacking: the hashes of leaves that came with their bytes, and where they are copied to.
  // Null: nothing is copied.
  const uint64_t* root_hashes = nullptr;
  uint64_t* root_hashes_to = nullptr;
};

// Bytes [begin, end) of a class, as a launch copies them: blocks of threads as above.
struct CopySegment {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_hash = 0;    // of its leaves, in both lists of hashes
  int32_t first_source = 0;  // boxes [first_source, source_end) cover the range
  int32_t source_end = 0;
  int32_t first_destination = 0;  // the same of the destinations
  int32_t destination_end = 0;
  int32_t first_block = 0;  // as above
};

// Copies segments from boxes to others of the same GPU, which do not overlap them. Where elements
// are converted, the destinations have them as they are packed, and nothing is hashed.
struct CopyArguments {
  static constexpr KernelParameter kParameter = KernelParameter::kCopy;

  const KernelBox* sources = nullptr;
  const KernelBox* destinations = nullptr;
  const CopySegment* segments = nullptr;
  int32_t segment_count = 0;
  // XXH3-64 of what was read of each leaf, and of what the destinations then hold. Null: nothing is
  // hashed.
  uint64_t* source_hashes = nullptr;
  uint64_t* destination_hashes = nullptr;
};

// What a block of threads reduces to, of the bytes of a segment.
inline constexpr int64_t kReducedBytesOfBlock = int64_t{1} << 14;

// Summands that are reduced to one, element by element: one after another at a fixed distance, all
// at multiples of the size of an element. In a list, segments are in the order of their blocks.
struct ReductionSegment {
  uint64_t address = 0;  // of the first summand
  int64_t distance_bytes = 0;
  int64_t bytes = 0;        // of one, at least 1
  uint64_t to_address = 0;  // where they are not
  int64_t row_bytes = 0;    // there; a summand's rows follow each other
  int64_t to_pitch_bytes = 0;
  int32_t summands = 1;     // at least 1
  int32_t first_block = 0;  // of the launch
};

// As ReductionKind of common/mesh/reduction.h.
enum class KernelReduction : uint8_t { kSum, kMin, kMax };

// Reduces segments of one type.
struct ReduceArguments {
  static constexpr KernelParameter kParameter = KernelParameter::kReduce;

  const ReductionSegment* segments = nullptr;
  int32_t segment_count = 0;
  KernelReduction kind = KernelReduction::kSum;
  int64_t divisor = 1;  // of a sum
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
