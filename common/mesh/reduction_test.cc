#include "common/mesh/reduction.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <limits>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr ReductionKind kReductionKinds[] = {ReductionKind::kSum, ReductionKind::kMin,
                                             ReductionKind::kMax};

TEST(ReductionTest, KindsHaveNames) {
  EXPECT_EQ(ReductionKindName(ReductionKind::kSum), "sum");
  EXPECT_EQ(ReductionKindName(ReductionKind::kMin), "min");
  EXPECT_EQ(ReductionKindName(ReductionKind::kMax), "max");
}

TEST(ReductionTest, IntegersAndFloatsOfTwoBytesAndMoreCanBeReduced) {
  for (const DataType type : {DataType::kU8, DataType::kI8, DataType::kI16, DataType::kU16,
                              DataType::kF16, DataType::kBF16, DataType::kI32, DataType::kU32,
                              DataType::kF32, DataType::kI64, DataType::kU64, DataType::kF64}) {
    for (const ReductionKind kind : kReductionKinds) {
      EXPECT_OK(CheckReduction(type, {.kind = kind})) << type;
    }
  }
}

TEST(ReductionTest, OtherTypesAreRefusedByName) {
  for (const DataType type : {DataType::kBool, DataType::kF8E5M2, DataType::kF8E4M3}) {
    for (const ReductionKind kind : kReductionKinds) {
      EXPECT_THAT(CheckReduction(type, {.kind = kind}),
                  IsRefused(absl::StrCat(DataTypeName(type), " cannot be reduced")));
    }
  }
}

TEST(ReductionTest, OnlySumsAreDividedAndByAtLeastOne) {
  EXPECT_OK(CheckReduction(DataType::kI8, {.divisor = 8}));
  EXPECT_OK(CheckReduction(DataType::kI8, {.divisor = std::numeric_limits<int64_t>::max()}));
  EXPECT_THAT(CheckReduction(DataType::kF32, {.divisor = 0}),
              IsRefused("sum of F32: expected a divisor of at least 1, found 0"));
  EXPECT_THAT(CheckReduction(DataType::kU64, {.divisor = -1}), IsRefused("U64"));
  EXPECT_THAT(CheckReduction(DataType::kBF16, {.kind = ReductionKind::kMin, .divisor = 2}),
              IsRefused("min of BF16: expected a divisor of 1, found 2"));
  EXPECT_THAT(CheckReduction(DataType::kF16, {.kind = ReductionKind::kMax, .divisor = 0}),
              IsRefused("max of F16"));
}

TEST(ReductionTest, DifferentReductionsAreUnequal) {
  EXPECT_EQ((Reduction{.divisor = 4}), (Reduction{.divisor = 4}));
  EXPECT_NE((Reduction{.divisor = 4}), Reduction());
  EXPECT_NE((Reduction{.kind = ReductionKind::kMin}), (Reduction{.kind = ReductionKind::kMax}));
}

}  // namespace
}  // namespace crossmesh
