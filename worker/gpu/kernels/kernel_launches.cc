#include "worker/gpu/kernels/kernel_launches.h"

#include "common/base/check.h"
#include "common/numbers/number_formats.h"
#include "worker/gpu/kernels/element_scaling.h"
#include "worker/gpu/kernels/leaf_hash.h"

#include <algorithm>

namespace crossmesh {

void KernelBoxList::Append(uint64_t address, int64_t bytes, int64_t packed_bytes) {
  Add({.address = address, .rows = 1, .row_bytes = bytes, .pitch_bytes = bytes});
  packed_bytes_ += packed_bytes;
}

void KernelBoxList::AppendQuantized(uint64_t address, int64_t elements, uint64_t factors_address) {
  // The columns that a cursor can count.
  constexpr int64_t kElementsMax = int64_t{1} << 29;
  constexpr int64_t kElementBytes = sizeof(Bf16::Word);
  static_assert(kElementsMax % kScaleBlock == 0);
  while (elements > 0) {
    const int64_t count = std::min(elements, kElementsMax);
    Add({.address = address,
         .rows = 1,
         .row_bytes = count * kElementBytes,
         .pitch_bytes = count * kElementBytes,
         .factors_address = factors_address});
    packed_bytes_ += count;
    elements -= count;
    address += count * kElementBytes;
    factors_address += count / kScaleBlock * sizeof(float);
  }
}

void KernelBoxList::Add(const KernelBox& row) {
  CHECK_GT(row.row_bytes, 0);
  if (Extend(row)) return;
  boxes_.push_back(row);
  boxes_.back().packed_offset = packed_bytes_;
}

bool KernelBoxList::Extend(const KernelBox& row) {
  if (boxes_.empty() || boxes_.back().factors_address != row.factors_address) return false;
  KernelBox& last = boxes_.back();
  const uint64_t last_row = last.address + (last.rows - 1) * last.pitch_bytes;
  const auto distance = static_cast<int64_t>(row.address - last_row);
  // Rows with factors stay rows: columns are counted from their beginning.
  if (last.rows == 1 && distance == last.row_bytes && row.factors_address == 0) {
    last.row_bytes += row.row_bytes;
    last.pitch_bytes = last.row_bytes;
    return true;
  }
  if (row.row_bytes == last.row_bytes && (last.rows == 1 || distance == last.pitch_bytes)) {
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

}  // namespace crossmesh
