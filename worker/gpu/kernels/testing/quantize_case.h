#pragma once

#include "common/mesh/conversion.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/quantize_kernel.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/kernel_runner.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace crossmesh {

static_assert(kScaleBlock == kScaleBlockLength);

// Matrices of bf16 in one memory, and their scales in another.
struct QuantizeCase {
  explicit QuantizeCase(RandomSource& random) {
    int64_t place = 0;
    int64_t scales_place = 0;
    for (int64_t i = random.Between(1, 3); i > 0; --i) {
      if (!random.OneIn(4)) place = (place + 15) / 16 * 16;
      const int64_t columns = random.OneIn(2) ? 128 * random.Between(1, 3) : random.Between(1, 400);
      QuantizedBox box = {.address = static_cast<uint64_t>(place),
                          .rows = random.Between(1, 300),
                          .columns = columns,
                          .pitch_bytes = 2 * (columns + (random.OneIn(2) ? 0 : random.Below(30))),
                          .packed_offset = packed_bytes,
                          .scales_address = static_cast<uint64_t>(scales_place),
                          .first_block = blocks};
      box.scales_pitch_bytes = 4 * (ScaleBlocks(columns) + random.Below(3));
      place += box.rows * box.pitch_bytes;
      scales_place += ScaleBlocks(box.rows) * box.scales_pitch_bytes;
      blocks += ScaleBlocks(box.rows) * ScaleBlocks(columns);
      packed_bytes += box.rows * columns;
      boxes.push_back(box);
    }
    memory = KernelMemory(place, random);
    scales = KernelMemory(scales_place, random);
    for (QuantizedBox& box : boxes) {
      box.address += memory.address();
      box.scales_address += scales.address();
    }
    MakeOrdinary(random);
  }

  // Of packed bytes [begin, end), to the beginning of `packed`.
  KernelRun RunOf(int64_t begin, int64_t end, KernelMemory& packed) {
    const QuantizedBlocks touched = QuantizedBlocksOf(boxes, begin, end);
    return {.kernel = "crossmesh_quantize",
            .blocks = touched.count,
            .arguments = QuantizeArguments{.boxes = boxes.data(),
                                           .box_count = static_cast<int32_t>(boxes.size()),
                                           .first_block = touched.first,
                                           .begin = begin,
                                           .end = end,
                                           .packed = packed.data()},
            .memory = {memory.whole(), scales.whole(), packed.whole()}};
  }

  // Random bits are of all magnitudes; weights are not. Some of them are NaN and infinite.
  void MakeOrdinary(RandomSource& random) {
    if (random.OneIn(3)) return;
    for (std::byte& byte : memory.bytes()) {
      if (reinterpret_cast<uint64_t>(&byte) % 2 == 0) continue;
      byte = (byte & std::byte{0x81}) | std::byte{0x3C};
      if (random.OneIn(5000)) byte |= std::byte{0x7F};
    }
  }

  std::vector<QuantizedBox> boxes;
  int64_t packed_bytes = 0;
  int64_t blocks = 0;
  KernelMemory memory;
  KernelMemory scales;
};

}  // namespace crossmesh
