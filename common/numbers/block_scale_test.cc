#include "common/numbers/block_scale.h"

#include "common/numbers/number_formats.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

std::vector<uint16_t> Elements(const std::vector<float>& numbers) {
  std::vector<uint16_t> elements;
  for (const float number : numbers) elements.push_back(Bf16::Narrow(BitsOf(number)));
  return elements;
}

const std::byte* BytesOf(const std::vector<uint16_t>& elements) {
  return reinterpret_cast<const std::byte*>(elements.data());
}

BlockScale ScaleOfRow(const std::vector<uint16_t>& elements) {
  return ScaleOf({.begin = BytesOf(elements), .rows = 1, .columns = std::ssize(elements)});
}

TEST(BlockScaleTest, TheScaleIsThatOfTheLargestMagnitude) {
  const BlockScale scale = ScaleOfRow(Elements({1.0F, -896.0F, 3.0F}));
  EXPECT_EQ(scale.scale, 2.0F);
  EXPECT_EQ(scale.factor, 0.5F);
}

TEST(BlockScaleTest, OnlyTheBlockCounts) {
  // Two rows of two in a matrix of three columns.
  const auto matrix = Elements({1, 448, 5000, 7, 9, 5000});
  EXPECT_EQ(ScaleOf({.begin = BytesOf(matrix), .rows = 2, .columns = 2, .pitch_bytes = 6}).scale,
            1.0F);
}

TEST(BlockScaleTest, ZerosHaveAScaleAndWhatIsNotFiniteHasNone) {
  EXPECT_EQ(ScaleOfRow(Elements({0.0F, -0.0F})).scale, kAmaxMin / kFp8Max);
  std::vector<uint16_t> special = Elements({448.0F});
  special.insert(special.end(), {0x7F80, 0xFF80, 0x7FFF});  // infinities, a NaN
  EXPECT_EQ(ScaleOfRow(special).scale, 1.0F);
}

TEST(BlockScaleTest, ElementsAreRoundedProducts) {
  std::vector<uint16_t> elements = Elements({1.0F, -896.0F, 34.0F, 0.0F});
  elements.insert(elements.end(), {0x7F80, 0x7FFF});
  std::vector<std::byte> to(elements.size());
  QuantizeElements(BytesOf(elements), to.data(), std::ssize(elements), 0.5F);
  // 17 is a tie of 16 and 18.
  const std::vector<std::byte> expected = {std::byte{0x30}, std::byte{0xFE}, std::byte{0x58},
                                           std::byte{0x00}, std::byte{0x7E}, std::byte{0x7F}};
  EXPECT_EQ(to, expected);
}

TEST(QuantizeTensorTest, EveryBlockHasItsScale) {
  // Blocks of 128 x 128, 128 x 2, 1 x 128 and 1 x 2, in the second of two matrices twice as large.
  constexpr int64_t kRows = 129;
  constexpr int64_t kColumns = 130;
  std::vector<float> numbers;
  for (const float factor : {1.0F, 2.0F}) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kColumns; ++column) {
        numbers.push_back(448 * factor * (row < 128 ? 1.0F : 4.0F) * (column < 128 ? 1.0F : 16.0F));
      }
    }
  }
  const std::vector<uint16_t> elements = Elements(numbers);
  const Shape shape = *Shape::Create(std::vector<int64_t>{2, kRows, kColumns});
  const QuantizedTensor quantized = QuantizeTensor(shape, std::as_bytes(std::span(elements)));
  EXPECT_EQ(quantized.elements, std::vector<std::byte>(shape.elements(), std::byte{0x7E}));
  std::vector<float> scales(quantized.scales.size() / sizeof(float));
  std::memcpy(scales.data(), quantized.scales.data(), quantized.scales.size());
  EXPECT_EQ(scales, (std::vector<float>{1, 16, 4, 64, 2, 32, 8, 128}));
}

}  // namespace
}  // namespace crossmesh
