#pragma once

#include "common/mesh/shape.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// How the elements of a block of bf16 become fp8 (e4m3): each is its product with `factor`,
// rounded. What was sent is about the fp8 value times `scale`. The same bits as on a GPU.
struct BlockScale {
  float scale = 0;   // amax / 448, of the largest finite magnitude, which counts as 2^-100 at least
  float factor = 0;  // 448 / amax
};

// Elements of a block in memory, at any address.
struct ElementBlock {
  const std::byte* begin = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t pitch_bytes = 0;  // from one row to the next
};
BlockScale ScaleOf(const ElementBlock& block);

// Quantizes elements of one block that follow each other in memory.
void QuantizeElements(const std::byte* from, std::byte* to, int64_t elements, float factor);

// A whole tensor of bf16 as fp8, row-major, and its scales (common/mesh/conversion.h), of f32.
struct QuantizedTensor {
  std::vector<std::byte> elements;
  std::vector<std::byte> scales;
};
// The tensor has at least two dimensions.
QuantizedTensor QuantizeTensor(const Shape& shape, std::span<const std::byte> elements);

}  // namespace crossmesh
