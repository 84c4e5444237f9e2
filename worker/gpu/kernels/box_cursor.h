#pragma once

#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/pieces_in_memory.h"

#include <cstdint>

namespace crossmesh {

// The index of the one of the boxes [first, end) that a position is in.
CROSSMESH_DEVICE inline int32_t FindBox(const KernelBox* boxes, int32_t first, int32_t end,
                                        int64_t position) {
  return FindLast<&KernelBox::packed_offset>(boxes, first, end, position);
}

// A place in the packed bytes of boxes whose elements are Elements (CopiedBytes or
// ConvertedElements), and in memory. It goes on for less than 1 GiB, so that 32 bits do for most of
// it: a longer row or a larger number of rows is taken to have no end.
template <class Elements>
class BoxCursor {
 public:
  using Scaling = typename Elements::Scaling;

  // `position` is in one of the boxes [first, end). The cursor may go on to the end of the last,
  // and past that to nowhere.
  CROSSMESH_DEVICE BoxCursor(const KernelBox* boxes, int32_t first, int32_t end, int64_t position)
      : boxes_(boxes), box_(FindBox(boxes, first, end, position)), end_(end) {
    const KernelBox& box = boxes[box_];
    const int64_t offset =
        (position - box.packed_offset) / Elements::kPackedBytes * Elements::kMemoryBytes;
    const int64_t row = offset / box.row_bytes;
    EnterRow(box, row, offset - row * box.row_bytes);
  }

  CROSSMESH_DEVICE uint64_t address() const { return address_; }
  // What is done to the elements here, and to how many packed bytes of the row from here on.
  CROSSMESH_DEVICE Scaling scaling() const { return row_scaling_.At(column()); }
  CROSSMESH_DEVICE int32_t alike_left() const { return Scaling::AlikeOf(row_left_, column()); }

  CROSSMESH_DEVICE void Advance(int32_t packed_bytes) {
    while (packed_bytes >= row_left_) {
      packed_bytes -= row_left_;
      address_ += MemoryBytes(row_left_) + gap_bytes_;
      row_left_ = row_bytes_;
      if (--rows_left_ == 0) EnterNextBox();
    }
    address_ += MemoryBytes(packed_bytes);
    row_left_ -= packed_bytes;
  }

  // The next 0 to 16 bytes, from as many rows as they lie in; moves past them.
  CROSSMESH_DEVICE Uint128 Load(int32_t bytes) {
    Uint128 piece = 0;
    for (int32_t done = 0; done < bytes;) {
      const int32_t part = Min(bytes - done, alike_left());
      piece |= Elements::LoadPart(address_, part, scaling()) << (8 * done);
      Advance(part);
      done += part;
    }
    return piece;
  }

  CROSSMESH_DEVICE void Store(Uint128 piece, int32_t bytes) {
    for (int32_t done = 0; done < bytes;) {
      const int32_t part = Min(bytes - done, row_left_);
      StorePart(address_, piece >> (8 * done), part);
      Advance(part);
      done += part;
    }
  }

 private:
  static constexpr int32_t kEndless = 1 << 30;

  // Packed bytes of the row that were passed; not needed in endless rows.
  CROSSMESH_DEVICE int32_t column() const { return row_bytes_ - row_left_; }

  CROSSMESH_DEVICE static int32_t MemoryBytes(int32_t packed_bytes) {
    return packed_bytes / Elements::kPackedBytes * Elements::kMemoryBytes;
  }
  CROSSMESH_DEVICE static int32_t PackedBytes(int64_t memory_bytes) {
    const int64_t bytes = memory_bytes / Elements::kMemoryBytes * Elements::kPackedBytes;
    return static_cast<int32_t>(Min<int64_t>(bytes, kEndless));
  }

  CROSSMESH_DEVICE void EnterRow(const KernelBox& box, int64_t row, int64_t column) {
    address_ = box.address + row * box.pitch_bytes + column;
    gap_bytes_ = box.pitch_bytes - box.row_bytes;
    row_left_ = PackedBytes(box.row_bytes - column);
    row_bytes_ = PackedBytes(box.row_bytes);
    rows_left_ = static_cast<int32_t>(Min<int64_t>(box.rows - row, kEndless));
    row_scaling_ = Scaling::OfRow::In(box);
  }

  CROSSMESH_DEVICE void EnterNextBox() {
    if (++box_ < end_) {
      EnterRow(boxes_[box_], 0, 0);
    } else {
      row_left_ = kEndless;
    }
  }

  const KernelBox* boxes_;
  int32_t box_;
  int32_t end_;
  uint64_t address_ = 0;
  int64_t gap_bytes_ = 0;  // in memory, from the end of a row to the next
  int32_t row_left_ = 0;   // packed
  int32_t row_bytes_ = 0;  // packed
  int32_t rows_left_ = 0;  // with the one in hand
  // Of the row: read from the box once, since what is read of elements waits for it.
  [[no_unique_address]] typename Scaling::OfRow row_scaling_ = {};
};

}  // namespace crossmesh
