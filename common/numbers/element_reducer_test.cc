// CROSSMESH_TEST_SEED and CROSSMESH_CASES choose which random arrays are reduced.

#include "common/numbers/element_reducer.h"

#include "common/numbers/number_formats.h"
#include "common/testing/random_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <type_traits>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr DataType kReducibleTypes[] = {
    DataType::kU8,  DataType::kI8,  DataType::kI16, DataType::kU16, DataType::kF16, DataType::kBF16,
    DataType::kI32, DataType::kU32, DataType::kF32, DataType::kI64, DataType::kU64, DataType::kF64};
constexpr DataType kFloatTypes[] = {DataType::kF16, DataType::kBF16, DataType::kF32,
                                    DataType::kF64};
constexpr ReductionKind kKinds[] = {ReductionKind::kSum, ReductionKind::kMin, ReductionKind::kMax};

constexpr double kInf = std::numeric_limits<double>::infinity();

bool IsFloat(DataType type) {
  return std::ranges::find(kFloatTypes, type) != std::end(kFloatTypes);
}

double NumberOf(DataType type, uint64_t bits) {
  if (type == DataType::kF16) return FloatOf(F16::Widen(static_cast<uint16_t>(bits)));
  if (type == DataType::kBF16) return FloatOf(Bf16::Widen(static_cast<uint16_t>(bits)));
  if (type == DataType::kF32) return FloatOf(static_cast<uint32_t>(bits));
  return std::bit_cast<double>(bits);
}

// Of all NaNs, that with all bits but the sign.
uint64_t BitsOfNumber(DataType type, double number) {
  if (std::isnan(number)) return ~uint64_t{0} >> (65 - 8 * ItemBytes(type));
  if (type == DataType::kF64) return std::bit_cast<uint64_t>(number);
  const uint32_t bits = BitsOf(static_cast<float>(number));
  if (type == DataType::kF16) return F16::Narrow(bits);
  return type == DataType::kBF16 ? Bf16::Narrow(bits) : bits;
}

// The plainest implementation for one element. Adding and dividing floats in double and rounding to
// float is the same as doing it in float.
uint64_t ReducedNumbers(DataType type, const Reduction& reduction,
                        const std::vector<uint64_t>& summands) {
  const auto rounded = [type](double number) {
    return type == DataType::kF64 ? number : static_cast<float>(number);
  };
  double result = NumberOf(type, summands[0]);
  for (size_t s = 1; s < summands.size(); ++s) {
    const double summand = NumberOf(type, summands[s]);
    const bool is_less =
        summand < result || (summand == result && std::signbit(summand) > std::signbit(result));
    if (reduction.kind == ReductionKind::kSum) {
      result = rounded(result + summand);
    } else if (std::isnan(result) || std::isnan(summand)) {
      result = std::nan("");
    } else if (is_less == (reduction.kind == ReductionKind::kMin)) {
      result = summand;
    }
  }
  return BitsOfNumber(type, rounded(result / rounded(static_cast<double>(reduction.divisor))));
}

template <typename Integer>
uint64_t ReducedIntegers(const Reduction& reduction, const std::vector<uint64_t>& summands) {
  using Wide = std::conditional_t<std::is_signed_v<Integer>, int64_t, uint64_t>;
  auto result = static_cast<Integer>(summands[0]);
  for (size_t s = 1; s < summands.size(); ++s) {
    const auto summand = static_cast<Integer>(summands[s]);
    switch (reduction.kind) {
      case ReductionKind::kSum:
        result = static_cast<Integer>(static_cast<uint64_t>(result) + summands[s]);
        break;
      case ReductionKind::kMin:
        if (summand < result) result = summand;
        break;
      case ReductionKind::kMax:
        if (summand > result) result = summand;
        break;
    }
  }
  return static_cast<uint64_t>(Wide{result} / static_cast<Wide>(reduction.divisor));
}

uint64_t ReducedElement(DataType type, const Reduction& reduction,
                        const std::vector<uint64_t>& summands) {
  if (type == DataType::kU8) return ReducedIntegers<uint8_t>(reduction, summands);
  if (type == DataType::kI8) return ReducedIntegers<int8_t>(reduction, summands);
  if (type == DataType::kI16) return ReducedIntegers<int16_t>(reduction, summands);
  if (type == DataType::kU16) return ReducedIntegers<uint16_t>(reduction, summands);
  if (type == DataType::kI32) return ReducedIntegers<int32_t>(reduction, summands);
  if (type == DataType::kU32) return ReducedIntegers<uint32_t>(reduction, summands);
  if (type == DataType::kI64) return ReducedIntegers<int64_t>(reduction, summands);
  if (type == DataType::kU64) return ReducedIntegers<uint64_t>(reduction, summands);
  return ReducedNumbers(type, reduction, summands);
}

uint64_t LoadElement(DataType type, const std::byte* address) {
  uint64_t bits = 0;
  std::memcpy(&bits, address, ItemBytes(type));
  return bits;
}

// Summands with room between them, at addresses that are multiples of nothing; one of them may lie
// elsewhere.
class SummandArrays {
 public:
  SummandArrays(DataType type, int64_t count, int64_t elements,
                std::optional<int64_t> elsewhere = std::nullopt)
      : type_(type),
        count_(count),
        bytes_(elements * ItemBytes(type)),
        distance_bytes_(bytes_ + 3),
        elsewhere_(elsewhere),
        // What nothing is to read there is no number.
        memory_(1 + count * distance_bytes_, std::byte{0xFF}),
        memory_elsewhere_(1 + bytes_) {}

  void Set(int64_t summand, int64_t element, uint64_t bits) {
    std::memcpy(At(summand, element), &bits, ItemBytes(type_));
  }
  uint64_t Get(int64_t summand, int64_t element) {
    return LoadElement(type_, At(summand, element));
  }

  // Of so many elements; those that are written, with a guard byte on both sides.
  std::vector<std::byte> Reduced(const Reduction& reduction, int64_t first, int64_t elements) {
    const int64_t bytes = elements * ItemBytes(type_);
    std::vector<std::byte> out(bytes + 2, std::byte{0xA5});
    Summands summands{.first = InRow(0, first), .distance_bytes = distance_bytes_, .count = count_};
    if (elsewhere_.has_value()) {
      summands.elsewhere = At(*elsewhere_, first);
      summands.elsewhere_index = *elsewhere_;
    }
    ReducerFor(type_, reduction.kind)(summands, out.data() + 1, bytes, reduction.divisor);
    return out;
  }
  // What the plainest implementation gives.
  std::vector<std::byte> Expected(const Reduction& reduction) {
    std::vector<std::byte> out(bytes_ + 2, std::byte{0xA5});
    for (int64_t i = 0; i < elements(); ++i) {
      std::vector<uint64_t> summands;
      for (int64_t s = 0; s < count_; ++s) summands.push_back(Get(s, i));
      const uint64_t bits = ReducedElement(type_, reduction, summands);
      std::memcpy(out.data() + 1 + i * ItemBytes(type_), &bits, ItemBytes(type_));
    }
    return out;
  }
  int64_t elements() const { return bytes_ / ItemBytes(type_); }

 private:
  std::byte* At(int64_t summand, int64_t element) {
    if (elsewhere_ != summand) return InRow(summand, element);
    return memory_elsewhere_.data() + 1 + element * ItemBytes(type_);
  }
  std::byte* InRow(int64_t summand, int64_t element) {
    return memory_.data() + 1 + summand * distance_bytes_ + element * ItemBytes(type_);
  }

  const DataType type_;
  const int64_t count_;
  const int64_t bytes_;
  const int64_t distance_bytes_;
  const std::optional<int64_t> elsewhere_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> memory_elsewhere_;
};

// Any bits; of a float as often a number of moderate size, and now and then a special one.
uint64_t RandomElement(DataType type, std::mt19937_64& random) {
  const std::vector<double> special = {0.0, -0.0, kInf, -kInf, 65504, -65504, 6e-8, -1e-40};
  const uint64_t bits = random();
  if (!IsFloat(type) || bits % 2 == 0) return random();
  if (bits % 16 == 1) return BitsOfNumber(type, special[random() % special.size()]);
  return BitsOfNumber(type,
                      static_cast<double>(static_cast<int64_t>(random() % 20001) - 10000) / 7);
}

SummandArrays RandomArrays(DataType type, std::mt19937_64& random) {
  const auto count = static_cast<int64_t>(1 + random() % 9);
  const int64_t elements_max = random() % 2 == 0 ? 40 : 2500;
  const auto elements = static_cast<int64_t>(random() % elements_max);
  std::optional<int64_t> elsewhere;
  if (random() % 2 == 0) elsewhere = static_cast<int64_t>(random() % count);
  SummandArrays arrays(type, count, elements, elsewhere);
  for (int64_t s = 0; s < count; ++s) {
    for (int64_t i = 0; i < elements; ++i) arrays.Set(s, i, RandomElement(type, random));
  }
  return arrays;
}

Reduction RandomReduction(ReductionKind kind, std::mt19937_64& random) {
  if (kind != ReductionKind::kSum || random() % 2 == 0) return {.kind = kind};
  const bool is_large = random() % 4 == 0;
  return {.divisor = static_cast<int64_t>(1 + (is_large ? random() >> 2 : random() % 9))};
}

// One element of each of the summands, as bits and as numbers.
uint64_t ReducedBits(DataType type, const Reduction& reduction,
                     const std::vector<uint64_t>& summands) {
  SummandArrays arrays(type, std::ssize(summands), 1);
  for (int64_t s = 0; s < std::ssize(summands); ++s) arrays.Set(s, 0, summands[s]);
  return LoadElement(type, arrays.Reduced(reduction, 0, 1).data() + 1);
}
double ReducedNumber(DataType type, const Reduction& reduction,
                     const std::vector<double>& summands) {
  std::vector<uint64_t> bits;
  for (const double summand : summands) bits.push_back(BitsOfNumber(type, summand));
  return NumberOf(type, ReducedBits(type, reduction, bits));
}
template <typename Integer>
Integer ReducedInteger(DataType type, const Reduction& reduction,
                       const std::vector<Integer>& summands) {
  const std::vector<uint64_t> bits(summands.begin(), summands.end());
  return static_cast<Integer>(ReducedBits(type, reduction, bits));
}

constexpr Reduction kSum;
constexpr Reduction kMin = {.kind = ReductionKind::kMin};
constexpr Reduction kMax = {.kind = ReductionKind::kMax};

TEST(ElementReducerTest, RandomArraysAreReducedAsElementByElement) {
  const uint64_t first = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  const int64_t cases = RandomCases(10);
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(cases); ++seed) {
    std::mt19937_64 random(seed);
    for (const DataType type : kReducibleTypes) {
      for (const ReductionKind kind : kKinds) {
        SummandArrays arrays = RandomArrays(type, random);
        const Reduction reduction = RandomReduction(kind, random);
        ASSERT_TRUE(arrays.Reduced(reduction, 0, arrays.elements()) == arrays.Expected(reduction))
            << "CROSSMESH_TEST_SEED=" << seed << ": " << ReductionKindName(kind) << " of " << type
            << " by " << reduction.divisor;
      }
    }
  }
}

TEST(ElementReducerTest, WhereArraysAreCutChangesNoBit) {
  const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  for (const DataType type : kReducibleTypes) {
    for (const ReductionKind kind : kKinds) {
      SummandArrays arrays = RandomArrays(type, random);
      const Reduction reduction = RandomReduction(kind, random);
      std::vector<std::byte> joined = {std::byte{0xA5}};
      for (int64_t begin = 0, length = 0; begin < arrays.elements(); begin += length) {
        length = std::min<int64_t>(1 + random() % 1500, arrays.elements() - begin);
        const std::vector<std::byte> piece = arrays.Reduced(reduction, begin, length);
        joined.insert(joined.end(), piece.begin() + 1, piece.end() - 1);
      }
      joined.push_back(std::byte{0xA5});
      ASSERT_TRUE(joined == arrays.Reduced(reduction, 0, arrays.elements()))
          << ReductionKindName(kind) << " of " << type;
    }
  }
}

TEST(ElementReducerTest, IntegersWrap) {
  EXPECT_EQ(ReducedInteger<uint8_t>(DataType::kU8, kSum, {200, 100}), 44);
  EXPECT_EQ(ReducedInteger<int8_t>(DataType::kI8, kSum, {100, 100}), -56);
  using Limits = std::numeric_limits<int64_t>;
  EXPECT_EQ(ReducedInteger<int64_t>(DataType::kI64, kSum, {Limits::max(), 1}), Limits::min());
}

TEST(ElementReducerTest, MeansOfIntegersAreThoseOfTheWrappedSumCutOffTowardsZero) {
  EXPECT_EQ(ReducedInteger<int32_t>(DataType::kI32, {.divisor = 2}, {-3, -4}), -3);
  EXPECT_EQ(ReducedInteger<int32_t>(DataType::kI32, {.divisor = 2}, {3, 4}), 3);
  EXPECT_EQ(ReducedInteger<uint8_t>(DataType::kU8, {.divisor = 2}, {200, 101}), 22);
  EXPECT_EQ(ReducedInteger<int8_t>(DataType::kI8, {.divisor = 1000}, {100, -1}), 0);
  EXPECT_EQ(ReducedInteger<uint64_t>(DataType::kU64, {.divisor = 2}, {~uint64_t{0}}),
            ~uint64_t{0} >> 1);
}

TEST(ElementReducerTest, SumsOfHalvesAreRoundedOnce) {
  // Their own steps are 2 here.
  EXPECT_EQ(ReducedNumber(DataType::kBF16, kSum, {256, 1, 1}), 258);
  EXPECT_EQ(ReducedNumber(DataType::kF16, kSum, {2048, 1, 1}), 2050);
  EXPECT_EQ(ReducedNumber(DataType::kF16, kSum, {65504, 65504, -65504}), 65504);
  EXPECT_EQ(ReducedNumber(DataType::kF16, {.divisor = 2}, {65504, 65504}), 65504);
  EXPECT_EQ(ReducedNumber(DataType::kF16, kSum, {65504, 65504}), kInf);
  EXPECT_EQ(ReducedNumber(DataType::kF16, kSum, {-65504, -65504}), -kInf);
}

TEST(ElementReducerTest, SumsTakeSummandsInOrderInTheirOwnType) {
  EXPECT_EQ(ReducedNumber(DataType::kF32, kSum, {1e8, -1e8, 1}), 1);
  EXPECT_EQ(ReducedNumber(DataType::kF32, kSum, {1e8, 1, -1e8}), 0);
  EXPECT_EQ(ReducedNumber(DataType::kF64, kSum, {1e8, 1, -1e8}), 1);
  EXPECT_EQ(ReducedNumber(DataType::kF64, kSum, {1e17, 1, -1e17}), 0);
  EXPECT_EQ(ReducedNumber(DataType::kF32, kSum, {3e38, 3e38, -3e38}), kInf);
}

TEST(ElementReducerTest, ANanAmongSummandsIsTheResult) {
  for (const DataType type : kFloatTypes) {
    const uint64_t nan = BitsOfNumber(type, std::nan(""));
    const uint64_t inf = BitsOfNumber(type, kInf);
    const uint64_t sign = nan + 1;
    // All bits, and one bit, of both signs.
    for (const uint64_t any_nan : {nan, sign | nan, inf + 1, sign | (inf + 1)}) {
      for (const Reduction& reduction : {kSum, kMin, kMax}) {
        EXPECT_EQ(ReducedBits(type, reduction, {inf, any_nan, sign | inf}), nan) << type;
        EXPECT_EQ(ReducedBits(type, reduction, {any_nan, 0}), nan) << type;
        EXPECT_EQ(ReducedBits(type, reduction, {any_nan}), nan) << type;
      }
    }
    EXPECT_EQ(ReducedBits(type, kSum, {inf, sign | inf}), nan) << type;
  }
}

TEST(ElementReducerTest, ExtremesTakeInfinitiesAndSignsOfZerosForWhatTheyAre) {
  for (const DataType type : kFloatTypes) {
    EXPECT_EQ(ReducedNumber(type, kMin, {1, kInf, -kInf, 2}), -kInf) << type;
    EXPECT_EQ(ReducedNumber(type, kMax, {1, kInf, -kInf, 2}), kInf) << type;
    EXPECT_EQ(ReducedNumber(type, kMin, {kInf, kInf}), kInf) << type;
    EXPECT_EQ(ReducedNumber(type, kMax, {-kInf, -kInf}), -kInf) << type;
    for (const auto& zeros : {std::vector<double>{-0.0, 0.0}, std::vector<double>{0.0, -0.0}}) {
      EXPECT_TRUE(std::signbit(ReducedNumber(type, kMin, zeros))) << type;
      EXPECT_FALSE(std::signbit(ReducedNumber(type, kMax, zeros))) << type;
      EXPECT_FALSE(std::signbit(ReducedNumber(type, kSum, zeros))) << type;
    }
  }
}

TEST(ElementReducerTest, OneSummandIsTheResultOrIsDivided) {
  for (const DataType type : kFloatTypes) {
    for (const Reduction& reduction : {kSum, kMin, kMax}) {
      for (const double number : {-0.0, 1.5, -kInf}) {
        EXPECT_EQ(ReducedBits(type, reduction, {BitsOfNumber(type, number)}),
                  BitsOfNumber(type, number));
      }
    }
    EXPECT_EQ(ReducedNumber(type, {.divisor = 4}, {3}), 0.75) << type;
  }
  EXPECT_EQ(ReducedInteger<int16_t>(DataType::kI16, kMax, {-5}), -5);
}

}  // namespace
}  // namespace crossmesh
