#include "common/numbers/element_reducer.h"

#include "common/base/check.h"
#include "common/numbers/number_formats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

namespace crossmesh {
namespace {

// So many states stay in the nearest cache while one summand after another is joined to them.
constexpr int64_t kBlockElements = 1024;

// A rule reads each summand of an element as a state, joins these in order, and writes the element.
// It has no branches where it can, so that compilers make it do several elements at once.

template <typename Integer>
struct SumOfIntegers {
  static constexpr bool kIsSum = true;
  using Word = std::make_unsigned_t<Integer>;
  using State = Word;
  static State Read(Word word) { return word; }
  static State Join(State sum, State summand) { return static_cast<State>(sum + summand); }
  static State Divide(State sum, int64_t divisor) {
    using Wide = std::conditional_t<std::is_signed_v<Integer>, int64_t, uint64_t>;
    return static_cast<State>(Wide{static_cast<Integer>(sum)} / static_cast<Wide>(divisor));
  }
  static Word Write(State sum) { return sum; }
};

// F16 or BF16.
template <class Format>
struct SumOfHalves {
  static constexpr bool kIsSum = true;
  using Word = typename Format::Word;
  using State = float;
  static State Read(Word word) { return FloatOf(Format::Widen(word)); }
  static State Join(State sum, State summand) { return sum + summand; }
  static State Divide(State sum, int64_t divisor) { return sum / static_cast<State>(divisor); }
  static Word Write(State sum) { return Format::Narrow(BitsOf(sum)); }
};

template <typename Float>
struct SumOfFloats {
  static constexpr bool kIsSum = true;
  using Word = std::conditional_t<sizeof(Float) == sizeof(uint32_t), uint32_t, uint64_t>;
  using State = Float;
  static State Read(Word word) { return std::bit_cast<State>(word); }
  static State Join(State sum, State summand) { return sum + summand; }
  static State Divide(State sum, int64_t divisor) { return sum / static_cast<State>(divisor); }
  static Word Write(State sum) {
    // Which of two NaNs an addition keeps is the compiler's choice.
    constexpr Word kNan = std::numeric_limits<Word>::max() >> 1;
    return std::isnan(sum) ? kNan : std::bit_cast<Word>(sum);
  }
};

template <typename Integer, ReductionKind kind>
struct ExtremeOfIntegers {
  static constexpr bool kIsSum = false;
  using Word = Integer;
  using State = Integer;
  static State Read(Word word) { return word; }
  static State Join(State a, State b) {
    return kind == ReductionKind::kMin ? std::min(a, b) : std::max(a, b);
  }
  static Word Write(State extreme) { return extreme; }
};

// A state is an integer that compares as the numbers do, -0 below +0. In the order of their bits,
// those of negative numbers turned around, NaNs lie at both ends; the order is rotated so that all
// of them lie at the end that wins.
//
// Example: for the maximum of F16, -inf is -32768, -0 is -1024, +0 is -1023 and +inf is 30721; NaNs
// are 30722 to 32767.
template <typename Key, int mantissa_bits, ReductionKind kind>
struct ExtremeOfFloats {
  static constexpr bool kIsSum = false;
  using Word = std::make_unsigned_t<Key>;
  using State = Key;
  static constexpr Word kMagnitude = std::numeric_limits<Key>::max();
  static constexpr Word kNansOfASign = (Word{1} << mantissa_bits) - 1;
  static constexpr Word kInfinity = kMagnitude - kNansOfASign;
  static constexpr Word kRotation =
      kind == ReductionKind::kMin ? kNansOfASign : static_cast<Word>(-kNansOfASign);

  // All bits of a negative number but its sign. Its own inverse.
  static Word TurnNegative(Word word) {
    const auto sign = static_cast<Word>(static_cast<Key>(word) >> std::numeric_limits<Key>::digits);
    return word ^ (sign & kMagnitude);
  }
  static State Read(Word word) { return static_cast<Key>(TurnNegative(word) + kRotation); }
  static State Join(State a, State b) {
    return kind == ReductionKind::kMin ? std::min(a, b) : std::max(a, b);
  }
  static Word Write(State extreme) {
    const Word word = TurnNegative(static_cast<Word>(static_cast<Word>(extreme) - kRotation));
    return (word & kMagnitude) > kInfinity ? kMagnitude : word;
  }
};

template <class Rule>
typename Rule::State ReadAt(const std::byte* elements, int64_t i) {
  typename Rule::Word word;
  std::memcpy(&word, elements + i * sizeof(word), sizeof(word));
  return Rule::Read(word);
}

template <class Rule>
void WriteAt(typename Rule::State state, std::byte* elements, int64_t i) {
  const typename Rule::Word word = Rule::Write(state);
  std::memcpy(elements + i * sizeof(word), &word, sizeof(word));
}

template <class Rule>
void DivideAll(std::span<typename Rule::State> states, int64_t divisor) {
  if (divisor == 1) return;
  for (typename Rule::State& state : states) state = Rule::Divide(state, divisor);
}

template <class Rule>
[[gnu::always_inline]] inline void ReduceBlocks(const Summands& summands, std::byte* out,
                                                int64_t bytes, int64_t divisor) {
  constexpr int64_t kItemBytes = sizeof(typename Rule::Word);
  typename Rule::State block[kBlockElements];
  for (int64_t begin = 0; begin < bytes; begin += kBlockElements * kItemBytes) {
    const int64_t elements = std::min(kBlockElements, (bytes - begin) / kItemBytes);
    const std::byte* summand = summands.first + begin;
    for (int64_t i = 0; i < elements; ++i) block[i] = ReadAt<Rule>(summand, i);
    for (int64_t s = 1; s < summands.count; ++s) {
      summand += summands.distance_bytes;
      for (int64_t i = 0; i < elements; ++i) {
        block[i] = Rule::Join(block[i], ReadAt<Rule>(summand, i));
      }
    }
    if constexpr (Rule::kIsSum) DivideAll<Rule>(std::span(block, elements), divisor);
    for (int64_t i = 0; i < elements; ++i) WriteAt<Rule>(block[i], out + begin, i);
  }
}

#if defined(__x86_64__)
// The same, compiled for wider registers: no sum changes its order by that.
template <class Rule>
[[gnu::target("avx2")]] void ReduceAvx2(const Summands& summands, std::byte* out, int64_t bytes,
                                        int64_t divisor) {
  ReduceBlocks<Rule>(summands, out, bytes, divisor);
}
#endif

template <class Rule>
void Reduce(const Summands& summands, std::byte* out, int64_t bytes, int64_t divisor) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return ReduceAvx2<Rule>(summands, out, bytes, divisor);
#endif
  ReduceBlocks<Rule>(summands, out, bytes, divisor);
}

using ReducersByKind = std::array<ElementReducer, 3>;

template <typename Integer>
constexpr ReducersByKind kOfIntegers = {Reduce<SumOfIntegers<Integer>>,
                                        Reduce<ExtremeOfIntegers<Integer, ReductionKind::kMin>>,
                                        Reduce<ExtremeOfIntegers<Integer, ReductionKind::kMax>>};

template <class Sum, typename Key, int mantissa_bits>
constexpr ReducersByKind kOfFloats = {
    Reduce<Sum>, Reduce<ExtremeOfFloats<Key, mantissa_bits, ReductionKind::kMin>>,
    Reduce<ExtremeOfFloats<Key, mantissa_bits, ReductionKind::kMax>>};

struct TypeReducers {
  DataType type;
  ReducersByKind by_kind;
};

constexpr std::array<TypeReducers, 12> kReducers = {{
    {DataType::kU8, kOfIntegers<uint8_t>},
    {DataType::kI8, kOfIntegers<int8_t>},
    {DataType::kI16, kOfIntegers<int16_t>},
    {DataType::kU16, kOfIntegers<uint16_t>},
    {DataType::kF16, kOfFloats<SumOfHalves<F16>, int16_t, 10>},
    {DataType::kBF16, kOfFloats<SumOfHalves<Bf16>, int16_t, 7>},
    {DataType::kI32, kOfIntegers<int32_t>},
    {DataType::kU32, kOfIntegers<uint32_t>},
    {DataType::kF32, kOfFloats<SumOfFloats<float>, int32_t, 23>},
    {DataType::kI64, kOfIntegers<int64_t>},
    {DataType::kU64, kOfIntegers<uint64_t>},
    {DataType::kF64, kOfFloats<SumOfFloats<double>, int64_t, 52>},
}};

}  // namespace

ElementReducer ReducerFor(DataType type, ReductionKind kind) {
  const auto reducers = std::ranges::find(kReducers, type, &TypeReducers::type);
  CHECK(reducers != kReducers.end()) << type << " cannot be reduced";
  return reducers->by_kind[static_cast<size_t>(kind)];
}

}  // namespace crossmesh
