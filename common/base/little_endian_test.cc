#include "common/base/little_endian.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(LittleEndianTest, TheLeastSignificantByteComesFirst) {
  EXPECT_EQ(ToLittleEndian(0x0102, 2), "\x02\x01");
  EXPECT_EQ(ToLittleEndian(0x010203, 2), "\x03\x02");
  EXPECT_EQ(FromLittleEndian("\x02\x01"), 0x0102);
  EXPECT_EQ(FromLittleEndian(""), 0);
}

TEST(LittleEndianTest, EightBytesSurviveBothWays) {
  for (const uint64_t number : {uint64_t{0}, uint64_t{0xfe}, uint64_t{0x8000'0000'0000'0001}}) {
    EXPECT_EQ(FromLittleEndian(ToLittleEndian(number, 8)), number);
  }
}

}  // namespace
}  // namespace crossmesh
