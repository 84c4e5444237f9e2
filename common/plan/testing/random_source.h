#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace crossmesh {

// Reproducible choices for random tests: the same seed gives the same choices everywhere.
// Thread-compatible.
class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : engine_(seed) {}

  // In [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  int64_t Below(int64_t bound) { return Between(0, bound - 1); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(static_cast<int64_t>(from.size()))];
  }
  template <typename T>
  void Shuffle(std::vector<T>& items) {
    for (int64_t i = static_cast<int64_t>(items.size()) - 1; i > 0; --i) {
      std::swap(items[i], items[Below(i + 1)]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace crossmesh
