#include "worker/gpu/kernels/kernel_launches.h"

#include "common/base/check.h"
#include "worker/gpu/kernels/box_cursor.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/quantize_kernel.h"

namespace crossmesh {

void KernelBoxList::Append(uint64_t address, int64_t bytes, int64_t packed_bytes) {
  CHECK_GT(bytes, 0);
  if (!Extend(address, bytes)) {
    boxes_.push_back({.address = address,
                      .rows = 1,
                      .row_bytes = bytes,
                      .pitch_bytes = bytes,
                      .packed_offset = packed_bytes_});
  }
  packed_bytes_ += packed_bytes;
}

bool KernelBoxList::Extend(uint64_t address, int64_t bytes) {
  if (boxes_.empty()) return false;
  KernelBox& last = boxes_.back();
  const uint64_t last_row = last.address + (last.rows - 1) * last.pitch_bytes;
  const auto distance = static_cast<int64_t>(address - last_row);
  if (last.rows == 1 && distance == last.row_bytes) {
    last.row_bytes += bytes;
    last.pitch_bytes = last.row_bytes;
    return true;
  }
  if (bytes == last.row_bytes && (last.rows == 1 || distance == last.pitch_bytes)) {
    last.pitch_bytes = distance;
    ++last.rows;
    return true;
  }
  return false;
}

int64_t LeavesOf(int64_t begin, int64_t end) {
  CHECK_LE(begin, end);
  return (end - begin + kLeafBytes - 1) / kLeafBytes;
}

QuantizedBlocks QuantizedBlocksOf(std::span<const QuantizedBox> boxes, int64_t begin, int64_t end) {
  CHECK_LT(begin, end);
  CHECK_GE(begin, boxes.front().packed_offset);
  // The first block of the row of blocks that `position` is in, and the blocks of that row.
  const auto blocks_at = [boxes](int64_t position) {
    const QuantizedBox& box =
        boxes[FindBox(boxes.data(), 0, static_cast<int32_t>(boxes.size()), position)];
    const int64_t row = (position - box.packed_offset) / box.columns;
    CHECK_LT(row, box.rows);
    const int64_t count = ScaleBlocks(box.columns);
    return QuantizedBlocks{.first = box.first_block + row / kScaleBlock * count, .count = count};
  };
  const int64_t first = blocks_at(begin).first;
  const QuantizedBlocks last = blocks_at(end - 1);
  return {.first = first, .count = last.first + last.count - first};
}

}  // namespace crossmesh
