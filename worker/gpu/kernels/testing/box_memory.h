#pragma once

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

  // At a multiple of 16.
  std::byte* data() { return reinterpret_cast<std::byte*>(granules_.data() + 1); }
  uint64_t address() { return reinterpret_cast<uint64_t>(data()); }
  std::span<std::byte> bytes() { return {data(), static_cast<size_t>(bytes_)}; }
  // What lies around the bytes as well.
  std::span<std::byte> whole() { return std::as_writable_bytes(std::span(granules_)); }
  std::vector<std::byte> Copy() const;

 private:
  int64_t bytes_ = 0;
  std::vector<Uint128> granules_;
};

struct BoxMemoryOptions {
  int64_t packed_bytes = 0;  // about
  // Of elements. Rows and addresses are multiples of the first.
  int memory_bytes = 1;
  int packed_element_bytes = 1;
};

// Boxes that do not overlap, with rows short and long, at any alignment.
struct BoxMemory {
  BoxMemory(const BoxMemoryOptions& options, RandomSource& random);

  KernelMemory memory;
  std::vector<KernelBox> boxes;
  int64_t packed_bytes = 0;
};

}  // namespace crossmesh
