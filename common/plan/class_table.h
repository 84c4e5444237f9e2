#pragma once

#include "common/base/heap_bytes.h"
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
  ClassTable(int64_t rows, int64_t columns, int64_t uses)
      : rows_(rows), columns_(columns), dense_(rows * columns <= DenseMax(uses)) {
    if (dense_) table_.assign(rows * columns, kNoClass);
  }

  // The place of the class; kNoClass where there is none yet. Valid until the next call.
  ClassIndex& At(int32_t row, int32_t column) {
    if (dense_) return table_[row * columns_ + column];
    return map_.try_emplace(std::pair(row, column), kNoClass).first->second;
  }

  ClassIndex Find(int32_t row, int32_t column) const {
    if (row >= rows_ || column >= columns_) return kNoClass;
    if (dense_) return table_[row * columns_ + column];
    const auto found = map_.find(std::pair(row, column));
    return found == map_.end() ? kNoClass : found->second;
  }

  int64_t heap_bytes() const { return HeapBytes(table_) + TableBytes(map_); }

 private:
  static int64_t DenseMax(int64_t uses) {
    return uses < (int64_t{1} << 22) ? (int64_t{1} << 14) + 4 * uses : int64_t{1} << 24;
  }

  int64_t rows_;
  int64_t columns_;
  bool dense_;
  std::vector<ClassIndex> table_;
  absl::flat_hash_map<std::pair<int32_t, int32_t>, ClassIndex> map_;
};

}  // namespace crossmesh
