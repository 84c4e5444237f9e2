#include "common/base/format.h"

#include <limits>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(FormatTest, BytesUseDecimalUnits) {
  EXPECT_EQ(FormatBytes(ByteCount(0)), "0 B");
  EXPECT_EQ(FormatBytes(ByteCount(999)), "999 B");
  EXPECT_EQ(FormatBytes(ByteCount(1000)), "1.0 kB");
  EXPECT_EQ(FormatBytes(ByteCount(497'759'232)), "497.8 MB");
  EXPECT_EQ(FormatBytes(ByteCount(-2'500'000'000)), "-2.5 GB");
  EXPECT_EQ(FormatBytes(ByteCount(std::numeric_limits<int64_t>::max())), "9.2 EB");
}

TEST(FormatTest, RoundingMovesToTheNextUnit) {
  EXPECT_EQ(FormatBytes(ByteCount(999'949)), "999.9 kB");
  EXPECT_EQ(FormatBytes(ByteCount(999'951)), "1.0 MB");
}

TEST(FormatTest, RatesArePerSecond) {
  EXPECT_EQ(FormatRate(1.25e9), "1.2 GB/s");
  EXPECT_EQ(FormatRate(0.2), "0 B/s");
  EXPECT_EQ(FormatRate(kInfinity), "-");
}

TEST(FormatTest, SecondsChooseAUnit) {
  EXPECT_EQ(FormatSeconds(0), "0 s");
  EXPECT_EQ(FormatSeconds(350e-9), "350 ns");
  EXPECT_EQ(FormatSeconds(12.5e-6), "12.5 us");
  EXPECT_EQ(FormatSeconds(3.21e-3), "3.21 ms");
  EXPECT_EQ(FormatSeconds(1.5), "1.50 s");
  EXPECT_EQ(FormatSeconds(-1.5), "-1.50 s");
  EXPECT_EQ(FormatSeconds(59.999), "1 min 00 s");
  EXPECT_EQ(FormatSeconds(125), "2 min 05 s");
  EXPECT_EQ(FormatSeconds(3 * 3600 + 7 * 60 + 12), "3 h 07 min");
  EXPECT_EQ(FormatSeconds(kInfinity), "-");
}

}  // namespace
}  // namespace crossmesh
