#pragma once

#include <atomic>

namespace crossmesh {

// The order in which operations have ended, of all clients together. Thread-safe.
class EndedOperations {
 public:
  // The place of one that has ended now.
  int Count() { return count_++; }
  int count() const { return count_; }
  // Whether a controller still has it: it keeps the last thousand that have ended, and hears of
  // ends in another order than clients do.
  bool IsKept(int place) const { return place >= count_ - kKept; }

 private:
  static constexpr int kKept = 900;

  std::atomic<int> count_ = 0;
};

}  // namespace crossmesh
