#pragma once

#include "common/mesh/conversion.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/element_scaling.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/kernel_runner.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

static_assert(kScaleBlock == kScaleBlockLength);

// Matrices of bf16 in one memory, and their scales and factors in two others.
struct ScaleCase {
  explicit ScaleCase(RandomSource& random) {
    int64_t place = 0;
    int64_t scales_place = 0;
    for (int64_t i = random.Between(1, 3); i > 0; --i) {
      if (!random.OneIn(4)) place = (place + 15) / 16 * 16;
      const int64_t columns = random.OneIn(2) ? 128 * random.Between(1, 3) : random.Between(1, 400);
      ScaledMatrix matrix = {
          .address = static_cast<uint64_t>(place),
          .rows = random.Between(1, 300),
          .columns = columns,
          .pitch_bytes = 2 * (columns + (random.OneIn(2) ? 0 : random.Below(30))),
          .scales_address = static_cast<uint64_t>(scales_place),
          .factors_address = static_cast<uint64_t>(scales_place),
          .scales_pitch_bytes = 4 * (ScaleBlocks(columns) + random.Below(3)),
          .first_block = blocks};
      place += matrix.rows * matrix.pitch_bytes;
      scales_place += ScaleBlocks(matrix.rows) * matrix.scales_pitch_bytes;
      blocks += ScaleBlocks(matrix.rows) * ScaleBlocks(columns);
      matrices.push_back(matrix);
    }
    memory = KernelMemory(place, random);
    scales = KernelMemory(scales_place, random);
    factors = KernelMemory(scales_place, random);
    for (ScaledMatrix& matrix : matrices) {
      matrix.address += memory.address();
      matrix.scales_address += scales.address();
      matrix.factors_address += factors.address();
    }
    if (!random.OneIn(3)) MakeOrdinary(memory, random);
  }

  KernelLaunch Run() {
    return {.kernel = "crossmesh_scale",
            .blocks = blocks,
            .arguments = ScaleArguments{.matrices = matrices.data(),
                                        .matrix_count = static_cast<int32_t>(matrices.size())},
            .memory = {memory.whole(), scales.whole(), factors.whole()}};
  }

  std::vector<ScaledMatrix> matrices;
  int64_t blocks = 0;
  KernelMemory memory;
  KernelMemory scales;
  KernelMemory factors;
};

}  // namespace crossmesh
