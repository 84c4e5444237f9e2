// Integers that do not mix: a peer is not a ticket, bytes are not elements.
//
//   using PeerId = StrongInt<struct PeerIdTag, uint64_t>;
//   using ByteCount = StrongCount<struct ByteCountTag>;
//
// For ids that are only handed on and compared, and for amounts. Ranks and indices, which mostly
// are subscripts, stay plain (common/plan/indices.h); where two of them belong together a struct
// names them.

#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <utility>

namespace crossmesh {

// An id, rank or index: compares, hashes and steps to the next, nothing else. Immutable but for
// stepping.
template <class Tag, class Rep = int64_t>
class StrongInt {
 public:
  using ValueType = Rep;

  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep value) : value_(value) {}

  constexpr Rep value() const { return value_; }

  // For loops over indices.
  constexpr StrongInt& operator++() {
    ++value_;
    return *this;
  }

  friend constexpr auto operator<=>(StrongInt, StrongInt) = default;

  friend std::ostream& operator<<(std::ostream& out, StrongInt value) {
    return out << value.value_;
  }

  template <typename H>
  friend H AbslHashValue(H state, StrongInt value) {
    return H::combine(std::move(state), value.value_);
  }

 private:
  Rep value_ = 0;
};

// A quantity: also adds, subtracts, scales by plain numbers, and divides into a plain ratio.
// Overflow is the caller's to exclude (see checked_math.h).
template <class Tag, class Rep = int64_t>
class StrongCount {
 public:
  using ValueType = Rep;

  constexpr StrongCount() = default;
  constexpr explicit StrongCount(Rep value) : value_(value) {}

  constexpr Rep value() const { return value_; }

  constexpr StrongCount& operator++() {
    ++value_;
    return *this;
  }
  constexpr StrongCount& operator+=(StrongCount other) {
    value_ += other.value_;
    return *this;
  }
  constexpr StrongCount& operator-=(StrongCount other) {
    value_ -= other.value_;
    return *this;
  }

  friend constexpr StrongCount operator+(StrongCount a, StrongCount b) { return a += b; }
  friend constexpr StrongCount operator-(StrongCount a, StrongCount b) { return a -= b; }
  friend constexpr StrongCount operator*(StrongCount a, Rep b) { return StrongCount(a.value_ * b); }
  friend constexpr StrongCount operator*(Rep a, StrongCount b) { return b * a; }
  friend constexpr StrongCount operator/(StrongCount a, Rep b) { return StrongCount(a.value_ / b); }
  friend constexpr Rep operator/(StrongCount a, StrongCount b) { return a.value_ / b.value_; }
  friend constexpr StrongCount operator%(StrongCount a, StrongCount b) {
    return StrongCount(a.value_ % b.value_);
  }

  friend constexpr auto operator<=>(StrongCount, StrongCount) = default;

  friend std::ostream& operator<<(std::ostream& out, StrongCount value) {
    return out << value.value_;
  }

  template <typename H>
  friend H AbslHashValue(H state, StrongCount value) {
    return H::combine(std::move(state), value.value_);
  }

 private:
  Rep value_ = 0;
};

}  // namespace crossmesh
