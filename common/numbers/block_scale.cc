#include "common/numbers/block_scale.h"

#include "common/mesh/conversion.h"
#include "common/numbers/number_formats.h"

#include <algorithm>
#include <cstring>

namespace crossmesh {
namespace {

constexpr uint16_t kMagnitude = 0x7FFF;
constexpr uint16_t kInfinity = 0x7F80;

uint16_t ElementAt(const std::byte* address) {
  uint16_t element;
  std::memcpy(&element, address, sizeof(element));
  return element;
}

}  // namespace

BlockScale ScaleOf(const ElementBlock& block) {
  // Bits of non-negative numbers compare as the numbers do.
  uint16_t peak = 0;
  for (int64_t row = 0; row < block.rows; ++row) {
    const std::byte* const elements = block.begin + row * block.pitch_bytes;
    for (int64_t column = 0; column < block.columns; ++column) {
      const uint16_t magnitude =
          ElementAt(elements + column * static_cast<int64_t>(sizeof(uint16_t))) & kMagnitude;
      peak = std::max(peak, magnitude < kInfinity ? magnitude : uint16_t{0});
    }
  }
  const float amax = std::max(FloatOf(Bf16::Widen(peak)), kAmaxMin);
  return {.scale = amax / kFp8Max, .factor = kFp8Max / amax};
}

void QuantizeElements(const std::byte* from, std::byte* to, int64_t elements, float factor) {
  for (int64_t i = 0; i < elements; ++i) {
    const uint16_t element = ElementAt(from + i * static_cast<int64_t>(sizeof(uint16_t)));
    to[i] = std::byte{Fp8::Narrow(BitsOf(FloatOf(Bf16::Widen(element)) * factor))};
  }
}

// Writes a block's elements at the same place of `to`, and returns its scale.
float QuantizeBlock(const ElementBlock& block, std::byte* to) {
  const BlockScale scale = ScaleOf(block);
  const int64_t pitch = block.pitch_bytes / static_cast<int64_t>(sizeof(uint16_t));
  for (int64_t row = 0; row < block.rows; ++row) {
    QuantizeElements(block.begin + row * block.pitch_bytes, to + row * pitch, block.columns,
                     scale.factor);
  }
  return scale.scale;
}

QuantizedTensor QuantizeTensor(const Shape& shape, std::span<const std::byte> elements) {
  const int64_t rows = shape[shape.rank() - 2];
  const int64_t columns = shape[shape.rank() - 1];
  constexpr int64_t kElementBytes = sizeof(uint16_t);
  QuantizedTensor quantized{.elements = std::vector<std::byte>(shape.elements())};
  for (int64_t matrix = 0; matrix < shape.elements(); matrix += rows * columns) {
    for (int64_t row = 0; row < rows; row += kScaleBlockLength) {
      for (int64_t column = 0; column < columns; column += kScaleBlockLength) {
        const int64_t first = matrix + row * columns + column;
        const ElementBlock block = {.begin = elements.data() + first * kElementBytes,
                                    .rows = std::min(kScaleBlockLength, rows - row),
                                    .columns = std::min(kScaleBlockLength, columns - column),
                                    .pitch_bytes = columns * kElementBytes};
        const float scale = QuantizeBlock(block, quantized.elements.data() + first);
        const auto bytes = std::as_bytes(std::span(&scale, 1));
        quantized.scales.insert(quantized.scales.end(), bytes.begin(), bytes.end());
      }
    }
  }
  return quantized;
}

}  // namespace crossmesh
