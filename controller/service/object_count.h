#pragma once

#include "controller/catalog/record_table.h"
#include "controller/service/paging.h"

#include <cstdint>
#include <string>

namespace crossmesh {

// How many objects a table has, for the metrics. Cost: linear in them.
template <typename T>
int64_t CountObjects(RecordTable<T>& table) {
  int64_t count = 0;
  std::string after;
  while (true) {
    const auto page = table.List(after, kPageSizeMax);
    if (!page.ok() || page->empty()) return count;
    count += static_cast<int64_t>(page->size());
    after = page->back().name;
  }
}

}  // namespace crossmesh
