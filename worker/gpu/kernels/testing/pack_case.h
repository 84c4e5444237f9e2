#pragma once

#include "common/mesh/box.h"
#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/kernel_launches.h"
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
    {"crossmesh_pack_bf16_as_f8_e4m3", {DataType::kBF16, DataType::kF8E4M3}},
    {"crossmesh_pack_f16_as_bf16", {DataType::kF16, DataType::kBF16}},
    {"crossmesh_pack_f16_as_f32", {DataType::kF16, DataType::kF32}},
    {"crossmesh_pack_f32_as_bf16", {DataType::kF32, DataType::kBF16}},
    {"crossmesh_pack_f32_as_f16", {DataType::kF32, DataType::kF16}},
};
// Without a conversion, as kernels unpack.
inline constexpr KernelOfTypes kPlainPack = kPacks[0];

// Of a launch that has no other, over all of the boxes.
inline PackSegment OnlySegment(Interval range, std::span<const KernelBox> boxes) {
  return {.begin = range.begin, .end = range.end, .box_end = static_cast<int32_t>(boxes.size())};
}

// Random boxes and a range of their packed bytes, at element boundaries, with room for its bytes
// and hashes.
struct PackCase {
  PackCase(const KernelOfTypes& kernel, RandomSource& random)
      : boxes(SourcesOf(kernel, random)),
        range(RandomRange(boxes.packed_bytes, ItemBytes(kernel.types.to), random)),
        packed(range.end - range.begin, random),
        leaf_hashes(LeavesOf(range.begin, range.end)),
        segment(OnlySegment(range, boxes.boxes)) {}

  PackArguments Arguments() {
    return {.boxes = boxes.boxes.data(),
            .segments = &segment,
            .segment_count = 1,
            .packed = packed.data(),
            .leaf_hashes = leaf_hashes.data()};
  }
  KernelLaunch LaunchOf(absl::string_view kernel, const PackArguments& arguments) {
    KernelLaunch run = {.kernel = kernel,
                        .blocks = std::ssize(leaf_hashes),
                        .arguments = arguments,
                        .memory = boxes.regions()};
    run.memory.push_back(packed.whole());
    run.memory.push_back(BytesOf(leaf_hashes));
    return run;
  }
  std::span<const std::byte> Of(std::span<const std::byte> packed_bytes) const {
    return packed_bytes.subspan(range.begin, range.end - range.begin);
  }

  BoxMemory boxes;
  Interval range;
  KernelMemory packed;
  std::vector<uint64_t> leaf_hashes;
  PackSegment segment;
};

}  // namespace crossmesh
