#pragma once

#include "common/plan/indices.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// The class of a (row, column): a dense table where that is no larger than the work that
// fills it, else a hash map. Thread-compatible.
class ClassTable {
 public:
  // For rows and columns below these numbers, looked up about `uses` times.
  ClassTable(int64_t rows, int64_t columns, int64_t uses);
  ClassTable(ClassTable&&) noexcept;
  ClassTable& operator=(ClassTable&&) noexcept;
  ~ClassTable();

  // The place of the class; kNoClass where there is none yet. Valid until the next call.
  ClassIndex& At(int32_t row, int32_t column) {
    return dense_ ? table_[row * columns_ + column] : AtSparse(row, column);
  }

  ClassIndex Find(int32_t row, int32_t column) const {
    if (row >= rows_ || column >= columns_) return kNoClass;
    return dense_ ? table_[row * columns_ + column] : FindSparse(row, column);
  }

  int64_t heap_bytes() const;

 private:
  // Of the map.
  ClassIndex& AtSparse(int32_t row, int32_t column);
  ClassIndex FindSparse(int32_t row, int32_t column) const;

  int64_t rows_;
  int64_t columns_;
  bool dense_;
  std::vector<ClassIndex> table_;
  absl::flat_hash_map<std::pair<int32_t, int32_t>, ClassIndex> map_;
};

}  // namespace crossmesh
