#pragma once

#include "common/mesh/box.h"

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <utility>

#include <absl/container/inlined_vector.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The lengths of a tensor's dimensions. Immutable; every Shape that exists is within the limits, so
// that products of its lengths with an item size fit in 64 bits. The limit on elements counts a
// length of 0 as 1: so partial products fit as well, in any order.
class Shape {
 public:
  static constexpr int kRankMax = 16;
  static constexpr int64_t kDimensionMax = int64_t{1} << 40;
  static constexpr int64_t kElementsMax = int64_t{1} << 48;

  Shape() = default;  // a scalar

  // InvalidArgument when a length is negative or a limit is passed (the message names the
  // dimension, what was found and the limit). A length of 0 is legal.
  static absl::StatusOr<Shape> Create(std::span<const int64_t> lengths);

  int rank() const { return static_cast<int>(lengths_.size()); }
  int64_t operator[](int dimension) const { return lengths_[dimension]; }
  std::span<const int64_t> lengths() const { return lengths_; }
  int64_t elements() const;
  Box FullBox() const;

  friend bool operator==(const Shape&, const Shape&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Shape& s) {
    return H::combine(std::move(h), s.lengths_);
  }

 private:
  absl::InlinedVector<int64_t, 4> lengths_;
};

// Text form "[50257, 768]"; "[]" for a scalar.
std::string ToString(const Shape& shape);
absl::StatusOr<Shape> ParseShape(absl::string_view text);
inline std::ostream& operator<<(std::ostream& out, const Shape& s) { return out << ToString(s); }

}  // namespace crossmesh
