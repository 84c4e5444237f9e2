#pragma once

#include "common/mesh/data_type.h"
#include "common/mesh/reduction.h"
#include "worker/pipeline/worker_program.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace crossmesh {

// What a rehearsal has a tensor of a transfer's messages consist of, at both ends: the same element
// everywhere, which another message is likely not to have. Where the transfer reduces or converts
// it is a small whole number, and what comes out is what its reductions make of as many such
// summands; else any byte.
class RehearsedTensor {
 public:
  // `tensor`: by index in the transfer's tensors.
  RehearsedTensor(const WorkerProgram::Transfer& transfer, int32_t tensor);

  // Of a message of an iteration.
  void Fill(int64_t iteration, int32_t message, std::span<std::byte> tile) const;
  bool Fits(int64_t iteration, int32_t message, std::span<const std::byte> tile) const;

 private:
  using Element = std::array<std::byte, 8>;

  bool is_number() const { return !reductions_.empty() || source_ != destination_; }
  uint64_t WordOf(int64_t iteration, int32_t message) const;
  Element Source(uint64_t word) const;
  Element Destination(uint64_t word) const;
  int64_t ItemBytesOf(DataType type) const { return is_number() ? ItemBytes(type) : 1; }

  uint32_t plan_;
  DataType source_;
  DataType destination_;
  // What the steps of a course make of its elements: so many summands become one.
  std::vector<std::pair<int64_t, Reduction>> reductions_;
};

}  // namespace crossmesh
