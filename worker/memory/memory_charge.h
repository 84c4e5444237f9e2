#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace crossmesh {

// What some memory takes of a budget, for as long as it lives. Thread-safe.
class MemoryCharge {
 public:
  // `bytes` have been taken of `used`.
  MemoryCharge(std::shared_ptr<std::atomic<int64_t>> used, int64_t bytes)
      : used_(std::move(used)), bytes_(bytes) {}
  ~MemoryCharge() { *used_ -= bytes_; }
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;

  // More or, below 0, less, without asking whether there is as much.
  void Add(int64_t bytes) {
    bytes_ += bytes;
    *used_ += bytes;
  }
  int64_t bytes() const { return bytes_; }

 private:
  const std::shared_ptr<std::atomic<int64_t>> used_;  // the budget's
  std::atomic<int64_t> bytes_;
};

}  // namespace crossmesh
