#include "common/plan/class_table.h"

#include "common/base/heap_bytes.h"

namespace crossmesh {
namespace {

int64_t DenseMax(int64_t uses) {
  return uses < (int64_t{1} << 22) ? (int64_t{1} << 14) + 4 * uses : int64_t{1} << 24;
}

}  // namespace

ClassTable::ClassTable(int64_t rows, int64_t columns, int64_t uses)
    : rows_(rows), columns_(columns), dense_(rows * columns <= DenseMax(uses)) {
  if (dense_) table_.assign(rows * columns, kNoClass);
}

ClassTable::ClassTable(ClassTable&&) noexcept = default;
ClassTable& ClassTable::operator=(ClassTable&&) noexcept = default;
ClassTable::~ClassTable() = default;

int64_t ClassTable::heap_bytes() const { return HeapBytes(table_) + TableBytes(map_); }

ClassIndex& ClassTable::AtSparse(int32_t row, int32_t column) {
  return map_.try_emplace(std::pair(row, column), kNoClass).first->second;
}

ClassIndex ClassTable::FindSparse(int32_t row, int32_t column) const {
  const auto found = map_.find(std::pair(row, column));
  return found == map_.end() ? kNoClass : found->second;
}

}  // namespace crossmesh
