#pragma once

#include "common/base/digest.h"
#include "common/mesh/data_type.h"
#include "common/mesh/reduction.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

class Gpu;
class GpuMemory;

// Where each tensor's tile of a device begins in memory of its GPU, by manifest index; 0 where the
// device holds nothing of it. The device only reads its source tiles.
struct GpuTiles {
  std::vector<uint64_t> source;
  std::vector<uint64_t> destination;
};

// Summands of one tensor, and where they go.
struct LegReduction {
  DataType type = DataType::kF32;
  ReductionSegment segment;  // but for its first block
};

// A compiled part in the memory of its device, and what is reduced once it has brought everything;
// where a collective adds, the destination tiles are those of the sums.
struct GpuLeg {
  std::shared_ptr<const CompiledPart> compiled;
  GpuTiles tiles;
  Reduction reduction = {};
  std::vector<LegReduction> reducing = {};
  int32_t step = 0;  // of those of all courses
  // Of the splits of all legs, that of the leg's collective; nothing: it is of all ranks, or none.
  std::optional<int32_t> split = std::nullopt;
  // What the devices of the compiled part's table are in that of the whole part. Null: the same.
  std::shared_ptr<const std::vector<DeviceRank>> ranks_in_whole = nullptr;
};

// What one device carries out of a part, leg after leg: the part itself, or of its courses each
// step of each instance, instance after instance. All ranks have the legs that they have part in in
// the same order.
struct GpuLegs {
  std::shared_ptr<const PreparedPart> part;  // the whole
  Digest agreement;                          // as CompiledPart's
  bool checksums = true;
  std::shared_ptr<const GpuMemory> arrays;  // between legs; null: there is none
  std::vector<GpuLeg> legs;
  // Whether some leg of some device is a collective, so that ranks agree all together; and the
  // splits that these need, which all ranks make, whatever their own legs.
  bool has_collectives = false;
  std::vector<std::vector<std::vector<DeviceRank>>> splits = {};  // as SplitsOf
};

GpuLegs OneLeg(std::shared_ptr<const CompiledPart> compiled, GpuTiles tiles);

// Of a part of one device that has courses, with memory for what lies between their steps.
// ResourceExhausted: there is none; InvalidArgument: not one device; what CompiledPart::Create
// says. Cost: that of compiling each step once, and the tensors of all instances.
absl::StatusOr<GpuLegs> LegsOfCourses(Gpu& gpu, const std::shared_ptr<const PreparedPart>& part,
                                      const GpuTiles& tiles, const CompiledPart::Options& options);

}  // namespace crossmesh
