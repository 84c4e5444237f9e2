#pragma once

#include "common/mesh/box.h"
#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/kernel_of_types.h"
#include "worker/gpu/kernels/testing/kernel_runner.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace crossmesh {

inline constexpr KernelOfTypes kCopy = {"crossmesh_copy", {DataType::kU8, DataType::kU8}};
inline constexpr KernelOfTypes kConvertingCopies[] = {
    {"crossmesh_copy_bf16_as_f16", {DataType::kBF16, DataType::kF16}},
    {"crossmesh_copy_bf16_as_f32", {DataType::kBF16, DataType::kF32}},
    {"crossmesh_copy_bf16_as_f8_e4m3", {DataType::kBF16, DataType::kF8E4M3}},
    {"crossmesh_copy_f16_as_bf16", {DataType::kF16, DataType::kBF16}},
    {"crossmesh_copy_f16_as_f32", {DataType::kF16, DataType::kF32}},
    {"crossmesh_copy_f32_as_bf16", {DataType::kF32, DataType::kBF16}},
    {"crossmesh_copy_f32_as_f16", {DataType::kF32, DataType::kF16}},
};

// A range of a class that lies in some boxes and is to be copied to others.
struct CopyCase {
  CopyCase(const KernelOfTypes& chosen, RandomSource& random)
      : kernel(chosen),
        sources(SourcesOf(chosen, random)),
        destinations({.packed_bytes = random.Between(16, 5 * kLeafBytes / 2)}, random),
        range(RandomRange(std::min(sources.packed_bytes, destinations.packed_bytes),
                          ItemBytes(chosen.types.to), random)),
        source_hashes(LeavesOf(range.begin, range.end)),
        destination_hashes(source_hashes.size()),
        segment({.begin = range.begin,
                 .end = range.end,
                 .source_end = static_cast<int32_t>(sources.boxes.size()),
                 .destination_end = static_cast<int32_t>(destinations.boxes.size())}) {}

  CopyArguments Arguments() {
    return {.sources = sources.boxes.data(),
            .destinations = destinations.boxes.data(),
            .segments = &segment,
            .segment_count = 1,
            .source_hashes = source_hashes.data(),
            .destination_hashes = destination_hashes.data()};
  }
  KernelLaunch LaunchOf(const CopyArguments& arguments) {
    KernelLaunch run = {.kernel = kernel.name,
                        .blocks = std::ssize(source_hashes),
                        .arguments = arguments,
                        .memory = sources.regions()};
    run.memory.push_back(destinations.memory.whole());
    run.memory.push_back(BytesOf(source_hashes));
    run.memory.push_back(BytesOf(destination_hashes));
    return run;
  }
  // What the sources have of the range, as it is packed.
  std::vector<std::byte> Packed() const {
    const std::vector<std::byte> packed =
        PackOnCpu(sources.boxes, kernel.types.from, kernel.types.to);
    return {packed.begin() + range.begin, packed.begin() + range.end};
  }
  // The destinations' memory after its reference implementation has copied, which leaves it as it
  // was.
  std::vector<std::byte> CopyByReference() {
    const std::vector<std::byte> before = destinations.memory.Copy();
    CopyOnCpu(sources.boxes, destinations.boxes, range, kernel.types);
    std::vector<std::byte> copied = destinations.memory.Copy();
    std::ranges::copy(before, destinations.memory.whole().begin());
    return copied;
  }

  const KernelOfTypes kernel;
  BoxMemory sources;
  BoxMemory destinations;
  Interval range;
  std::vector<uint64_t> source_hashes;
  std::vector<uint64_t> destination_hashes;
  CopySegment segment;
};

}  // namespace crossmesh
