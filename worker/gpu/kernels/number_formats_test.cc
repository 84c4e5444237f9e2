#include "common/numbers/number_formats.h"

#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

void ExpectNarrowsAsReference(uint32_t bits) {
  ASSERT_EQ(F16::Narrow(bits), ConvertOnCpu(DataType::kF32, DataType::kF16, bits)) << bits;
  ASSERT_EQ(Bf16::Narrow(bits), ConvertOnCpu(DataType::kF32, DataType::kBF16, bits)) << bits;
  ASSERT_EQ(Fp8::Narrow(bits), Fp8OnCpu(FloatOf(bits))) << bits;
}

TEST(NumberFormatsTest, F32NarrowsAsItsReferenceAtRandom) {
  RandomSource random(1);
  for (int i = 0; i < 300'000; ++i) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectNarrowsAsReference(static_cast<uint32_t>(random.Between(0, UINT32_MAX))));
  }
}

struct Fp8Case {
  double value;
  int bits;
};

TEST(NumberFormatsTest, Fp8RoundsAsByHand) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double step = std::ldexp(1, -9);  // between subnormal numbers
  const Fp8Case cases[] = {
      {0.0, 0x00},
      {1.0, 0x38},
      {1.0625, 0x38},            // a tie of 1 and 1.125: to the even one, down
      {1.0625 + 0x1p-20, 0x39},  // a little more
      {1.1875, 0x3A},            // a tie of 1.125 and 1.25: up
      {1.9375, 0x40},            // a tie of 1.875 and 2
      {0.875, 0x36},
      {240.0, 0x77},
      {400.0, 0x7C},  // a tie of 384 and 416
      {432.0, 0x7E},  // a tie of 416 and 448
      {448.0, 0x7E},  // the largest
      {463.0, 0x7E},
      {464.0, 0x7E},  // where a format without limit would go on to 480
      {1e30, 0x7E},
      {kInfinity, 0x7E},
      {0.5 * step, 0x00},  // a tie of 0 and the least number
      {0.5 * step + 0x1p-30, 0x01},
      {step, 0x01},
      {1.5 * step, 0x02},  // a tie of 1 and 2 steps
      {2.5 * step, 0x02},
      {7 * step, 0x07},    // the largest subnormal
      {7.5 * step, 0x08},  // a tie of it and the least normal number
      {8 * step, 0x08},
      {1e-30, 0x00},
  };
  for (const Fp8Case& c : cases) {
    EXPECT_EQ(Fp8::Narrow(BitsOf(static_cast<float>(c.value))), c.bits) << c.value;
    EXPECT_EQ(Fp8::Narrow(BitsOf(static_cast<float>(-c.value))), c.bits | 0x80) << -c.value;
    EXPECT_EQ(Fp8OnCpu(c.value), c.bits) << c.value;
  }
}

TEST(NumberFormatsTest, ANanStaysOne) {
  EXPECT_EQ(Fp8::Narrow(0x7F800001), 0x7F);
  EXPECT_EQ(Fp8::Narrow(0xFFC00000), 0x7F);
  EXPECT_EQ(F16::Narrow(0xFFC00000), 0x7FFF);
  EXPECT_EQ(Bf16::Narrow(0x7F800001), 0x7FFF);  // its bits cut off would be infinity
  EXPECT_EQ(F16::Widen(0xFC01), 0xFF802000);
  EXPECT_EQ(Bf16::Widen(0xFF81), 0xFF810000);
}

}  // namespace
}  // namespace crossmesh
