// What hosts make of bf16 is what kernels make of it: both are held to the same twin.

#include "common/numbers/block_scale.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/quantize_kernel.h"
#include "worker/gpu/kernels/testing/cpu_twins.h"
#include "worker/gpu/kernels/testing/quantize_case.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// The block of a box that begins at this element.
ElementBlock BlockAt(const QuantizedBox& box, int64_t row, int64_t column) {
  return {.begin = MemoryAt(box.address + row * box.pitch_bytes + 2 * column),
          .rows = std::min<int64_t>(kScaleBlock, box.rows - row),
          .columns = std::min<int64_t>(kScaleBlock, box.columns - column),
          .pitch_bytes = box.pitch_bytes};
}

float ScaleAt(const QuantizedBox& box, int64_t row, int64_t column) {
  return LoadAligned<float>(box.scales_address + row / kScaleBlock * box.scales_pitch_bytes +
                            sizeof(float) * (column / kScaleBlock));
}

// `packed` is of all boxes, by the twin, which has written the scales as well.
void ExpectQuantizedAlike(const QuantizedBox& box, int64_t row, int64_t column,
                          std::span<const std::byte> packed) {
  const ElementBlock block = BlockAt(box, row, column);
  const BlockScale scale = ScaleOf(block);
  ASSERT_EQ(scale.scale, ScaleAt(box, row, column));
  for (int64_t i = 0; i < block.rows; ++i) {
    std::vector<std::byte> found(block.columns);
    QuantizeElements(block.begin + i * block.pitch_bytes, found.data(), block.columns,
                     scale.factor);
    const int64_t at = box.packed_offset + (row + i) * box.columns + column;
    ASSERT_TRUE(std::ranges::equal(found, packed.subspan(at, block.columns)));
  }
}

TEST(HostQuantizationTest, HostsQuantizeAlike) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    QuantizeCase one(random);
    const std::vector<std::byte> expected = QuantizeOnCpu(one.boxes);
    for (const QuantizedBox& box : one.boxes) {
      for (int64_t row = 0; row < box.rows; row += kScaleBlock) {
        for (int64_t column = 0; column < box.columns; column += kScaleBlock) {
          ASSERT_NO_FATAL_FAILURE(ExpectQuantizedAlike(box, row, column, expected));
        }
      }
    }
  }
}

}  // namespace
}  // namespace crossmesh
