#pragma once

#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class GpuScales;

// The boxes of the classes that a compiled part reads and writes, in the tiles of its device: one
// list for both sides. Immutable.
class ClassBoxes {
 public:
  // Boxes [first, end) of the list.
  struct Range {
    int32_t first = 0;
    int32_t end = 0;
  };

  // `destinations` are addresses of tiles by manifest index, 0 for none; those of sources, and of
  // their scales, are the scales'. What CheckTile refuses. Cost: linear in the segments of the
  // classes that the compiled part touches.
  static absl::StatusOr<ClassBoxes> Create(const CompiledPart& compiled, const GpuScales& scales,
                                           std::span<const uint64_t> destinations);

  const std::vector<KernelBox>& list() const { return list_; }
  // Of a class that the compiled part reads on that side, or writes.
  Range RangeOf(Side side, ClassIndex slice_class) const;
  std::span<const KernelBox> Of(Side side, ClassIndex slice_class) const;

 private:
  class Collector;
  using Ranges = absl::flat_hash_map<ClassIndex, Range>;

  ClassBoxes() = default;

  std::vector<KernelBox> list_;
  Ranges source_;
  Ranges destination_;
};

}  // namespace crossmesh
