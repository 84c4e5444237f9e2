#pragma once

#include "common/mesh/box.h"
#include "common/mesh/conversion.h"
#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// Memory that kernels may be run on: in granules of 16 bytes, of which one at each end is spare,
// and filled with random bytes. Thread-compatible.
class KernelMemory {
 public:
  KernelMemory() = default;
  KernelMemory(int64_t bytes, RandomSource& random);

  // At a multiple of 16; null when there is none.
  std::byte* data() {
    return granules_.empty() ? nullptr : reinterpret_cast<std::byte*>(granules_.data() + 1);
  }
  uint64_t address() { return reinterpret_cast<uint64_t>(data()); }
  std::span<std::byte> bytes() { return {data(), static_cast<size_t>(bytes_)}; }
  // What lies around the bytes as well.
  std::span<std::byte> whole() { return std::as_writable_bytes(std::span(granules_)); }
  std::vector<std::byte> Copy() const;

 private:
  int64_t bytes_ = 0;
  std::vector<Uint128> granules_;
};

// Makes weights of random bits, which are bf16 of all magnitudes. Some are NaN and infinite.
void MakeOrdinary(KernelMemory& memory, RandomSource& random);

struct BoxMemoryOptions {
  int64_t packed_bytes = 0;  // about
  // Of elements. Rows and addresses are multiples of those in memory.
  Conversion types = {.from = DataType::kU8, .to = DataType::kU8};
};

// Boxes that do not overlap, with rows short and long, at any alignment; with factors where
// elements are quantized.
struct BoxMemory {
  BoxMemory(const BoxMemoryOptions& options, RandomSource& random);

  // All that the boxes point to.
  std::vector<std::span<std::byte>> regions();

  KernelMemory memory;
  KernelMemory factors;
  std::vector<KernelBox> boxes;
  int64_t packed_bytes = 0;

 private:
  void AddFactors(RandomSource& random);
};

// One row that begins at this address.
inline KernelBox OneRow(uint64_t address, int64_t bytes, int64_t packed_offset = 0) {
  return {.address = address,
          .rows = 1,
          .row_bytes = bytes,
          .pitch_bytes = bytes,
          .packed_offset = packed_offset};
}

// A range of packed bytes, of one item of so many bytes at least; often from the beginning, or to
// the end.
Interval RandomRange(int64_t packed_bytes, int64_t item_bytes, RandomSource& random);

}  // namespace crossmesh
