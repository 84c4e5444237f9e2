// Exact non-negative rational numbers: times of the network model, bytes divided by rates.

#pragma once

#include <compare>
#include <ostream>
#include <string>

#include <absl/numeric/int128.h>

namespace crossmesh {

// A quotient in lowest terms with a positive denominator. Immutable value. Comparison is exact and
// cannot overflow.
class Fraction {
 public:
  Fraction() = default;  // zero
  // Needs numerator >= 0 and denominator > 0. Implicit for whole numbers.
  Fraction(absl::int128 numerator, absl::int128 denominator = 1);  // NOLINT

  absl::int128 numerator() const { return numerator_; }
  absl::int128 denominator() const { return denominator_; }
  double ToDouble() const;

  friend bool operator==(const Fraction& a, const Fraction& b) = default;
  friend std::strong_ordering operator<=>(const Fraction& a, const Fraction& b);

 private:
  absl::int128 numerator_ = 0;
  absl::int128 denominator_ = 1;
};

// "32" or "112/3".
std::string ToString(const Fraction& fraction);
inline std::ostream& operator<<(std::ostream& out, const Fraction& f) { return out << ToString(f); }

}  // namespace crossmesh
