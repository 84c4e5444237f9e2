#pragma once

#include <cstdint>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// A number, at first 0, for every pair (row, column). An array where many of the pairs are expected
// to be used (a million classes between 1,024 and 1,024 slots), a hash table otherwise.
// Thread-compatible.
class PairTable {
 public:
  // 0 <= row < rows, 0 <= column < columns; about `expected` look-ups.
  PairTable(int64_t rows, int64_t columns, int64_t expected) : columns_(columns) {
    if (rows * columns <= kArrayPerLookup * expected) {
      array_.resize(rows * columns);
    } else {
      table_.reserve(expected);
    }
  }

  int32_t& At(int64_t row, int64_t column) {
    const int64_t key = row * columns_ + column;
    return array_.empty() ? table_[key] : array_[key];
  }

 private:
  // Clearing an array entry costs about a tenth of a look-up in a hash table.
  static constexpr int64_t kArrayPerLookup = 8;

  int64_t columns_;
  std::vector<int32_t> array_;
  absl::flat_hash_map<int64_t, int32_t> table_;
};

}  // namespace crossmesh
