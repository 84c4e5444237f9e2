// How much memory values keep on the heap, beside their own objects: for bounds on what is kept.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace crossmesh {

// What jemalloc takes for so many bytes: 8, multiples of 16 up to 128, and then four sizes for each
// doubling.
inline int64_t AllocationBytes(size_t bytes) {
  size_t step = 8;
  if (bytes > 8) step = bytes <= 128 ? 16 : std::bit_floor(bytes - 1) / 4;
  return static_cast<int64_t>((bytes + step - 1) / step * step);
}

inline int64_t HeapBytes(const std::string& text) {
  return text.capacity() == std::string().capacity() ? 0 : AllocationBytes(text.capacity() + 1);
}

// Of the vector alone, whose elements may keep more.
template <typename T>
int64_t ArrayBytes(const std::vector<T>& values) {
  return AllocationBytes(values.capacity() * sizeof(T));
}

// Elements that need no destructor keep nothing.
template <typename T>
  requires std::is_trivially_destructible_v<T>
int64_t HeapBytes(const std::vector<T>& values) {
  return ArrayBytes(values);
}

// Of one of Abseil's flat hash tables alone, whose elements may keep more: a slot and a byte for
// each place, and what it needs to look at 16 places at once.
template <typename Table>
int64_t TableBytes(const Table& table) {
  const size_t places = table.capacity();
  return places == 0 ? 0
                     : AllocationBytes(places * (sizeof(typename Table::value_type) + 1) + 16 + 8);
}

}  // namespace crossmesh
