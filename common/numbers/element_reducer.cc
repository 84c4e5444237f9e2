#include "common/numbers/element_reducer.h"

#include "common/base/check.h"
#include "common/numbers/reduction_rules.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace crossmesh {
namespace {

// So many states stay in the nearest cache while one summand after another is joined to them.
constexpr int64_t kBlockElements = 1024;

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
    const std::byte* summand = summands.At(0) + begin;
    for (int64_t i = 0; i < elements; ++i) block[i] = ReadAt<Rule>(summand, i);
    for (int64_t s = 1; s < summands.count; ++s) {
      summand = summands.At(s) + begin;
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

template <class Rules>
constexpr ReducersByKind kReducersBy = {Reduce<typename Rules::Sum>, Reduce<typename Rules::Min>,
                                        Reduce<typename Rules::Max>};

struct TypeReducers {
  DataType type;
  ReducersByKind by_kind;
};

constexpr std::array<TypeReducers, 12> kReducers = {{
    {DataType::kU8, kReducersBy<RulesOfIntegers<uint8_t>>},
    {DataType::kI8, kReducersBy<RulesOfIntegers<int8_t>>},
    {DataType::kI16, kReducersBy<RulesOfIntegers<int16_t>>},
    {DataType::kU16, kReducersBy<RulesOfIntegers<uint16_t>>},
    {DataType::kF16, kReducersBy<RulesOfF16>},
    {DataType::kBF16, kReducersBy<RulesOfBf16>},
    {DataType::kI32, kReducersBy<RulesOfIntegers<int32_t>>},
    {DataType::kU32, kReducersBy<RulesOfIntegers<uint32_t>>},
    {DataType::kF32, kReducersBy<RulesOfF32>},
    {DataType::kI64, kReducersBy<RulesOfIntegers<int64_t>>},
    {DataType::kU64, kReducersBy<RulesOfIntegers<uint64_t>>},
    {DataType::kF64, kReducersBy<RulesOfF64>},
}};

}  // namespace

ElementReducer ReducerFor(DataType type, ReductionKind kind) {
  const auto reducers = std::ranges::find(kReducers, type, &TypeReducers::type);
  CHECK(reducers != kReducers.end()) << type << " cannot be reduced";
  return reducers->by_kind[static_cast<size_t>(kind)];
}

}  // namespace crossmesh
