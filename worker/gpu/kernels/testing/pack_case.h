#pragma once

#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/kernel_of_types.h"
#include "worker/gpu/kernels/testing/kernel_runner.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

inline constexpr KernelOfTypes kPacks[] = {
    {"crossmesh_pack", {DataType::kU8, DataType::kU8}},
    {"crossmesh_pack_bf16_as_f16", {DataType::kBF16, DataType::kF16}},
    {"crossmesh_pack_bf16_as_f32", {DataType::kBF16, DataType::kF32}},
    {"crossmesh_pack_f16_as_bf16", {DataType::kF16, DataType::kBF16}},
    {"crossmesh_pack_f16_as_f32", {DataType::kF16, DataType::kF32}},
    {"crossmesh_pack_f32_as_bf16", {DataType::kF32, DataType::kBF16}},
    {"crossmesh_pack_f32_as_f16", {DataType::kF32, DataType::kF16}},
};
// Without a conversion, as kernels unpack.
inline constexpr KernelOfTypes kPlainPack = kPacks[0];

// Random boxes and a range of their packed bytes, at element boundaries, with room for its bytes
// and hashes.
struct PackCase {
  PackCase(const KernelOfTypes& kernel, RandomSource& random)
      : boxes({.packed_bytes = random.Between(1, 5 * kLeafBytes / 2),
               .memory_bytes = static_cast<int>(ItemBytes(kernel.types.from)),
               .packed_element_bytes = static_cast<int>(ItemBytes(kernel.types.to))},
              random) {
    const int64_t element_bytes = ItemBytes(kernel.types.to);
    const int64_t elements = boxes.packed_bytes / element_bytes;
    begin = random.OneIn(3) ? 0 : random.Below(elements) * element_bytes;
    end = random.OneIn(3)
              ? boxes.packed_bytes
              : begin + element_bytes * random.Between(1, elements - begin / element_bytes);
    packed = KernelMemory(end - begin, random);
    leaf_hashes.resize(LeavesOf(begin, end));
  }

  PackArguments Arguments() {
    return {.boxes = boxes.boxes.data(),
            .box_count = static_cast<int32_t>(boxes.boxes.size()),
            .begin = begin,
            .end = end,
            .packed = packed.data(),
            .leaf_hashes = leaf_hashes.data()};
  }
  KernelRun RunOf(absl::string_view kernel, const PackArguments& arguments) {
    return {.kernel = kernel,
            .blocks = std::ssize(leaf_hashes),
            .arguments = arguments,
            .memory = {boxes.memory.whole(), packed.whole(), BytesOf(leaf_hashes)}};
  }
  std::span<const std::byte> Of(std::span<const std::byte> packed_bytes) const {
    return packed_bytes.subspan(begin, end - begin);
  }

  BoxMemory boxes;
  int64_t begin = 0;
  int64_t end = 0;
  KernelMemory packed;
  std::vector<uint64_t> leaf_hashes;
};

}  // namespace crossmesh
