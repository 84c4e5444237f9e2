#pragma once

#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// Makes a list of boxes from pieces of memory in packed order, such as the segments of a class:
// pieces of one size at one distance, with the same factors, become one box. Thread-compatible.
class KernelBoxList {
 public:
  // Appends `bytes` (> 0) at `address`, after what is there; `packed_bytes` of them, where
  // elements are converted.
  void Append(uint64_t address, int64_t bytes, int64_t packed_bytes);
  void Append(uint64_t address, int64_t bytes) { Append(address, bytes, bytes); }
  // The same of `elements` of bf16 in one row of a matrix, which become as many bytes of fp8; the
  // first is at the beginning of a row of a scale block, and its factor at `factors_address`.
  void AppendQuantized(uint64_t address, int64_t elements, uint64_t factors_address);
  // The packed bytes so far.
  int64_t packed_bytes() const { return packed_bytes_; }
  const std::vector<KernelBox>& boxes() const { return boxes_; }

 private:
  void Add(const KernelBox& row);
  // False when the row does not fit to the last box.
  bool Extend(const KernelBox& row);

  std::vector<KernelBox> boxes_;
  int64_t packed_bytes_ = 0;
};

// How many blocks of threads a launch has: leaves of a range of packed bytes.
int64_t LeavesOf(int64_t begin, int64_t end);

}  // namespace crossmesh
