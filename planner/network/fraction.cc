#include "planner/network/fraction.h"

#include "common/base/check.h"

#include <sstream>

namespace crossmesh {
namespace {

absl::int128 GreatestCommonDivisor(absl::int128 a, absl::int128 b) {
  while (b != 0) {
    const absl::int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

}  // namespace

Fraction::Fraction(absl::int128 numerator, absl::int128 denominator) {
  CHECK(numerator >= 0 && denominator > 0) << numerator << "/" << denominator;
  const absl::int128 divisor = GreatestCommonDivisor(numerator, denominator);
  numerator_ = numerator / divisor;
  denominator_ = denominator / divisor;
}

double Fraction::ToDouble() const {
  return static_cast<double>(numerator_) / static_cast<double>(denominator_);
}

// Compares the continued fractions term by term: products of numerators and denominators would not
// fit. a/b < c/d with equal whole parts is the same as (inverse of the rest of a/b) > (that of
// c/d).
std::strong_ordering operator<=>(const Fraction& a, const Fraction& b) {
  absl::int128 a_upper = a.numerator_, a_lower = a.denominator_;
  absl::int128 b_upper = b.numerator_, b_lower = b.denominator_;
  auto less = std::strong_ordering::less, greater = std::strong_ordering::greater;
  while (a_lower != 0 && b_lower != 0) {
    const absl::int128 a_whole = a_upper / a_lower, b_whole = b_upper / b_lower;
    if (a_whole != b_whole) return a_whole < b_whole ? less : greater;
    const absl::int128 a_rest = a_upper % a_lower, b_rest = b_upper % b_lower;
    a_upper = a_lower, a_lower = a_rest;
    b_upper = b_lower, b_lower = b_rest;
    std::swap(less, greater);
  }
  // A denominator of zero stands for infinity, the inverse of an empty rest.
  if (a_lower == b_lower) return std::strong_ordering::equal;
  return a_lower == 0 ? greater : less;
}

std::string ToString(const Fraction& fraction) {
  std::ostringstream out;
  out << fraction.numerator();
  if (fraction.denominator() != 1) out << "/" << fraction.denominator();
  return out.str();
}

}  // namespace crossmesh
