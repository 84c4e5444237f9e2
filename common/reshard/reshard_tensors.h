#pragma once

#include "common/mesh/layout_rules.h"
#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/plan/tensor_table.h"

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Where one side of a reshard lies: the layouts of a manifest's tensors over a mesh.
struct ReshardLayout {
  const Mesh& mesh;
  const LayoutRules& rules;
};

// The table of a reshard of all of a manifest's tensors, on what the planner and everything after
// it work. `replica_axes` are axes of the destination mesh. Equal placements, and tensors alike,
// appear once, in the order of the first tensor that has them.
//
// A rule of the destination may name a data type: the tensor is converted to it. After all tensors
// come the scales of those that become F8_E4M3 (scale_tensors.h).
//
// InvalidArgument, naming the side and the tensor: no rule matches, or the one that does is for
// another rank, names a sub-mesh that there is not, a layout that does not fit the tensor or
// cuts its scale blocks, or a type that it cannot be converted to (at the source, any but its own);
// a tensor's scales would be called as another tensor; and what
// TensorTable::Create finds. Cost: tensors times rules, and slots times placements.
absl::StatusOr<TensorTable> BuildReshardTensors(const Manifest& manifest,
                                                const ReshardLayout& source,
                                                const ReshardLayout& destination,
                                                std::vector<std::string> replica_axes);

}  // namespace crossmesh
