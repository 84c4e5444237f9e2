// What summands of an element come to, by kind and type; for host and GPU, so that both get the
// same bits. Uses language and fixed-size integers only.
//
// A rule reads each summand of an element as a state, joins these in order, and writes the element.
// It has no branches where it can, so that compilers make it do several elements at once.

#pragma once

#include "common/numbers/device_function.h"
#include "common/numbers/number_formats.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace crossmesh {

// A mean is the sum, divided at the end.
template <typename Integer>
struct SumOfIntegers {
  static constexpr bool kIsSum = true;
  using Word = std::make_unsigned_t<Integer>;
  using State = Word;
  CROSSMESH_DEVICE static State Read(Word word) { return word; }
  CROSSMESH_DEVICE static State Join(State sum, State summand) {
    return static_cast<State>(sum + summand);
  }
  CROSSMESH_DEVICE static State Divide(State sum, int64_t divisor) {
    using Wide = std::conditional_t<std::is_signed_v<Integer>, int64_t, uint64_t>;
    return static_cast<State>(Wide{static_cast<Integer>(sum)} / static_cast<Wide>(divisor));
  }
  CROSSMESH_DEVICE static Word Write(State sum) { return sum; }
};

// F16 or BF16.
template <class Format>
struct SumOfHalves {
  static constexpr bool kIsSum = true;
  using Word = typename Format::Word;
  using State = float;
  CROSSMESH_DEVICE static State Read(Word word) { return FloatOf(Format::Widen(word)); }
  CROSSMESH_DEVICE static State Join(State sum, State summand) { return sum + summand; }
  CROSSMESH_DEVICE static State Divide(State sum, int64_t divisor) {
    return sum / static_cast<State>(divisor);
  }
  CROSSMESH_DEVICE static Word Write(State sum) { return Format::Narrow(BitsOf(sum)); }
};

template <typename Float>
struct SumOfFloats {
  static constexpr bool kIsSum = true;
  using Word = std::conditional_t<sizeof(Float) == sizeof(uint32_t), uint32_t, uint64_t>;
  using State = Float;
  CROSSMESH_DEVICE static State Read(Word word) {
    State state;
    std::memcpy(&state, &word, sizeof(state));
    return state;
  }
  CROSSMESH_DEVICE static State Join(State sum, State summand) { return sum + summand; }
  CROSSMESH_DEVICE static State Divide(State sum, int64_t divisor) {
    return sum / static_cast<State>(divisor);
  }
  // Which of two NaNs an addition keeps is the compiler's choice.
  static constexpr Word kNan = std::numeric_limits<Word>::max() >> 1;
  CROSSMESH_DEVICE static Word Write(State sum) {
    Word word;
    std::memcpy(&word, &sum, sizeof(word));
    const bool is_number = sum == sum;  // NOLINT(misc-redundant-expression): no NaN
    return is_number ? word : kNan;
  }
};

enum class Extreme : uint8_t { kMin, kMax };

template <typename State, Extreme extreme>
CROSSMESH_DEVICE constexpr State ExtremeOf(State a, State b) {
  return (extreme == Extreme::kMin ? b < a : a < b) ? b : a;
}

template <typename Integer, Extreme extreme>
struct ExtremeOfIntegers {
  static constexpr bool kIsSum = false;
  using Word = Integer;
  using State = Integer;
  CROSSMESH_DEVICE static State Read(Word word) { return word; }
  CROSSMESH_DEVICE static State Join(State a, State b) { return ExtremeOf<State, extreme>(a, b); }
  CROSSMESH_DEVICE static Word Write(State state) { return state; }
};

// A state is an integer that compares as the numbers do, -0 below +0. In the order of their bits,
// those of negative numbers turned around, NaNs lie at both ends; the order is rotated so that all
// of them lie at the end that wins.
//
// Example: for the maximum of F16, -inf is -32768, -0 is -1024, +0 is -1023 and +inf is 30721; NaNs
// are 30722 to 32767.
template <typename Key, int mantissa_bits, Extreme extreme>
struct ExtremeOfFloats {
  static constexpr bool kIsSum = false;
  using Word = std::make_unsigned_t<Key>;
  using State = Key;
  static constexpr Word kMagnitude = std::numeric_limits<Key>::max();
  static constexpr Word kNansOfASign = (Word{1} << mantissa_bits) - 1;
  static constexpr Word kInfinity = kMagnitude - kNansOfASign;
  static constexpr Word kRotation =
      extreme == Extreme::kMin ? kNansOfASign : static_cast<Word>(-kNansOfASign);
  static constexpr int kSignPlace = std::numeric_limits<Key>::digits;

  // All bits of a negative number but its sign. Its own inverse.
  CROSSMESH_DEVICE static Word TurnNegative(Word word) {
    const auto sign = static_cast<Word>(static_cast<Key>(word) >> kSignPlace);
    return word ^ (sign & kMagnitude);
  }
  CROSSMESH_DEVICE static State Read(Word word) {
    return static_cast<Key>(TurnNegative(word) + kRotation);
  }
  CROSSMESH_DEVICE static State Join(State a, State b) { return ExtremeOf<State, extreme>(a, b); }
  CROSSMESH_DEVICE static Word Write(State state) {
    const Word word = TurnNegative(static_cast<Word>(static_cast<Word>(state) - kRotation));
    return (word & kMagnitude) > kInfinity ? kMagnitude : word;
  }
};

// The three rules of a type.
template <typename Integer>
struct RulesOfIntegers {
  using Sum = SumOfIntegers<Integer>;
  using Min = ExtremeOfIntegers<Integer, Extreme::kMin>;
  using Max = ExtremeOfIntegers<Integer, Extreme::kMax>;
};

// `Key`: the signed integer of a number's size.
template <class SumRule, typename Key, int mantissa_bits>
struct RulesOfFloats {
  using Sum = SumRule;
  using Min = ExtremeOfFloats<Key, mantissa_bits, Extreme::kMin>;
  using Max = ExtremeOfFloats<Key, mantissa_bits, Extreme::kMax>;
};

using RulesOfF16 = RulesOfFloats<SumOfHalves<F16>, int16_t, 10>;
using RulesOfBf16 = RulesOfFloats<SumOfHalves<Bf16>, int16_t, 7>;
using RulesOfF32 = RulesOfFloats<SumOfFloats<float>, int32_t, 23>;
using RulesOfF64 = RulesOfFloats<SumOfFloats<double>, int64_t, 52>;

}  // namespace crossmesh
