#include "common/numbers/element_converter.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int kAllHalves = 1 << 16;

// Through `conversion`, to and from addresses that are multiples of nothing.
template <typename To, typename From>
std::vector<To> Converted(const Conversion& conversion, const std::vector<From>& from) {
  std::vector<std::byte> read(from.size() * sizeof(From) + 1);
  std::vector<std::byte> written(from.size() * sizeof(To) + 1);
  std::memcpy(read.data() + 1, from.data(), from.size() * sizeof(From));
  ConverterFor(conversion)(read.data() + 1, written.data() + 1, from.size() * sizeof(To));
  std::vector<To> to(from.size());
  std::memcpy(to.data(), written.data() + 1, from.size() * sizeof(To));
  return to;
}

std::vector<uint16_t> AllHalves() {
  std::vector<uint16_t> all(kAllHalves);
  for (int i = 0; i < kAllHalves; ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

bool IsNanOfF16(uint16_t bits) { return (bits & 0x7FFF) > 0x7C00; }
bool IsNanOfBf16(uint16_t bits) { return (bits & 0x7FFF) > 0x7F80; }

TEST(ElementConverterTest, KnownNumbersOfF32BecomeBf16) {
  const std::vector<float> numbers = {
      0.0F,         -0.0F,  1.0F,    -2.5F,
      3.14159265F,  1e-45F, 3.4e38F, std::numeric_limits<float>::infinity(),
      std::nanf("")};
  EXPECT_EQ(Converted<uint16_t>({DataType::kF32, DataType::kBF16}, numbers),
            (std::vector<uint16_t>{0x0000, 0x8000, 0x3F80, 0xC020, 0x4049, 0x0000, 0x7F80, 0x7F80,
                                   0x7FFF}));
}

TEST(ElementConverterTest, KnownNumbersOfF32BecomeF16) {
  const std::vector<float> numbers = {0.0F,     -0.0F,    1.0F,    -2.5F, 65504.0F,     65519.99F,
                                      65520.0F, 5.97e-8F, 2.9e-8F, 1e-3F, std::nanf("")};
  EXPECT_EQ(Converted<uint16_t>({DataType::kF32, DataType::kF16}, numbers),
            (std::vector<uint16_t>{0x0000, 0x8000, 0x3C00, 0xC100, 0x7BFF, 0x7BFF, 0x7C00, 0x0001,
                                   0x0000, 0x1419, 0x7FFF}));
}

TEST(ElementConverterTest, EveryHalfComesBackFromF32) {
  for (const DataType type : {DataType::kF16, DataType::kBF16}) {
    const std::vector<uint16_t> halves = AllHalves();
    const auto wide = Converted<float>({type, DataType::kF32}, halves);
    const auto back = Converted<uint16_t>({DataType::kF32, type}, wide);
    for (int i = 0; i < kAllHalves; ++i) {
      const bool is_nan = type == DataType::kF16 ? IsNanOfF16(halves[i]) : IsNanOfBf16(halves[i]);
      EXPECT_EQ(std::isnan(wide[i]), is_nan) << type << " " << i;
      EXPECT_EQ(back[i], is_nan ? 0x7FFF : halves[i]) << type << " " << i;
    }
  }
}

TEST(ElementConverterTest, HalvesOfOneKindBecomeThoseOfTheOtherAsThroughF32) {
  const std::vector<uint16_t> halves = AllHalves();
  const auto check = [&](DataType from, DataType to) {
    EXPECT_EQ(Converted<uint16_t>({from, to}, halves),
              Converted<uint16_t>({DataType::kF32, to},
                                  Converted<float>({from, DataType::kF32}, halves)));
  };
  check(DataType::kF16, DataType::kBF16);
  check(DataType::kBF16, DataType::kF16);
}

}  // namespace
}  // namespace crossmesh
