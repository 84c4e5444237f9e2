#pragma once

#include "common/mesh/mesh.h"
#include "common/mesh/topology.h"
#include "crossmesh/v1/layers.pb.h"
#include "planner/layers/layer_program.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What v1.LayerProgramSpec says, decoded.
struct DescribedLayers {
  static constexpr int kRanksMax = 4096;
  static constexpr int kOpsMax = 1 << 22;
  static constexpr int kTensorsMax = 1024;  // of a transfer
  static constexpr int kBuffersMax = 1 << 16;
  static constexpr int64_t kBytesMax = int64_t{1} << 50;
  static constexpr double kSecondsMax = 1e6;  // of an op

  LayerProgram program;
  std::optional<Topology> topology;
};

// `named` has the meshes that were found under names, by rank; null where it is inline. The program
// is valid. InvalidArgument names the field: a rank without a mesh, a device of two ranks, texts
// that are no layout, tensors of one name, numbers out of range; and what Validate finds. Cost:
// linear in the specification, and in the slots of meshes.
absl::StatusOr<DescribedLayers> FromProto(const v1::LayerProgramSpec& proto,
                                          const std::vector<std::shared_ptr<const Mesh>>& named);

// With inline meshes, and without a network.
v1::LayerProgramSpec ToProto(const LayerProgram& program);

}  // namespace crossmesh
