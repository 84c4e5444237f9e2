#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include <absl/container/inlined_vector.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Half-open range of indices of one tensor dimension. Empty when begin == end.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t length() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend bool operator==(const Interval&, const Interval&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Interval& i) {
    return H::combine(std::move(h), i.begin, i.end);
  }
};

// The common part; begin == end when there is none.
Interval Intersect(Interval a, Interval b);

// A half-open region of a tensor: one interval per dimension. A box of rank 0 holds the one
// element of a scalar. Immutable.
//
// Example: rows 2 and 3 of a [8, 5] tensor are [2:4, 0:5], with volume 10.
class Box {
 public:
  Box() = default;
  explicit Box(absl::InlinedVector<Interval, 4> intervals) : intervals_(std::move(intervals)) {}

  int rank() const { return static_cast<int>(intervals_.size()); }
  const Interval& operator[](int dimension) const { return intervals_[dimension]; }
  const absl::InlinedVector<Interval, 4>& intervals() const { return intervals_; }

  // Number of elements; 0 when any interval is empty. Never overflows for boxes inside a Shape.
  int64_t volume() const;
  bool empty() const;
  // Is every element of `other`, of the same rank, in this box?
  bool Contains(const Box& other) const;

  friend bool operator==(const Box&, const Box&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Box& b) {
    return H::combine(std::move(h), b.intervals_);
  }

 private:
  absl::InlinedVector<Interval, 4> intervals_;
};

// The common region of two boxes of one rank, or nothing when it is empty.
std::optional<Box> Intersect(const Box& a, const Box& b);

// Text form "[0:512, 0:1024]"; "[]" for rank 0.
std::string ToString(const Box& box);
// InvalidArgument when the text is malformed, an interval ends before it begins, or no Shape is
// large enough to hold the box.
absl::StatusOr<Box> ParseBox(absl::string_view text);
inline std::ostream& operator<<(std::ostream& out, const Box& box) { return out << ToString(box); }

}  // namespace crossmesh
