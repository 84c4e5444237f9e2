// What hosts make of bf16 is what kernels make of it: both are held to the same reference
// implementation.

#include "common/mesh/data_type.h"
#include "common/numbers/block_scale.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/element_scaling.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"
#include "worker/gpu/kernels/testing/scale_case.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// The block of a matrix that begins at this element.
ElementBlock BlockAt(const ScaledMatrix& matrix, int64_t row, int64_t column) {
  return {.begin = MemoryAt(matrix.address + row * matrix.pitch_bytes + 2 * column),
          .rows = std::min<int64_t>(kScaleBlock, matrix.rows - row),
          .columns = std::min<int64_t>(kScaleBlock, matrix.columns - column),
          .pitch_bytes = matrix.pitch_bytes};
}

// The reference implementation has written scales and factors.
void ExpectQuantizedAlike(const ScaledMatrix& matrix, int64_t row, int64_t column) {
  const uint64_t offset =
      row / kScaleBlock * matrix.scales_pitch_bytes + column / kScaleBlock * sizeof(float);
  const ElementBlock block = BlockAt(matrix, row, column);
  const BlockScale scale = ScaleOf(block);
  ASSERT_EQ(scale.scale, LoadAligned<float>(matrix.scales_address + offset));
  ASSERT_EQ(scale.factor, LoadAligned<float>(matrix.factors_address + offset));
  const KernelBox box = {.address = reinterpret_cast<uint64_t>(block.begin),
                         .rows = block.rows,
                         .row_bytes = 2 * block.columns,
                         .pitch_bytes = block.pitch_bytes,
                         .factors_address = matrix.factors_address + offset};
  std::vector<std::byte> found(block.rows * block.columns);
  for (int64_t i = 0; i < block.rows; ++i) {
    QuantizeElements(block.begin + i * block.pitch_bytes, &found[i * block.columns], block.columns,
                     scale.factor);
  }
  ASSERT_EQ(found, PackOnCpu({&box, 1}, DataType::kBF16, DataType::kF8E4M3));
}

TEST(HostQuantizationTest, HostsQuantizeAlike) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    ScaleCase one(random);
    ScaleOnCpu(one.matrices);
    for (const ScaledMatrix& matrix : one.matrices) {
      for (int64_t row = 0; row < matrix.rows; row += kScaleBlock) {
        for (int64_t column = 0; column < matrix.columns; column += kScaleBlock) {
          ASSERT_NO_FATAL_FAILURE(ExpectQuantizedAlike(matrix, row, column));
        }
      }
    }
  }
}

}  // namespace
}  // namespace crossmesh
