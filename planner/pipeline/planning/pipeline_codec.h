#pragma once

#include "common/mesh/mesh.h"
#include "crossmesh/v1/pipeline.pb.h"
#include "planner/pipeline/planning/pipeline_description.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The most that a specification may have.
struct PipelineLimits {
  static constexpr int kRanks = 4096;
  static constexpr int kStages = 4096;
  static constexpr int kEdges = 16384;
  static constexpr int kPairs = 16384;
  static constexpr int kTensorsOfEdge = 1024;
  static constexpr int kMicrobatchGroups = 1024;
  static constexpr int kSizes = 16;                      // of microbatches
  static constexpr int64_t kSamples = int64_t{1} << 40;  // of a microbatch
  static constexpr int64_t kOps = int64_t{1} << 22;      // stages or edges times microbatches
  static constexpr int64_t kBytes = int64_t{1} << 50;    // of anything on a device
  static constexpr int64_t kHops = int64_t{1} << 24;     // of the plans of all edges together
  static constexpr double kSeconds = 1e6;                // of an op or transfer
};

// `named` has the meshes that were found under names, by rank; null where it is inline.
// InvalidArgument names the field: a rank without a mesh, a device of two ranks, a stage on no
// rank, a rank without a stage, an edge that does not lead to a later stage or is there twice, a
// pair of stages of two ranks, or that is there twice or takes less than either op, a layout that
// does not fit its tensor at one of the sizes of microbatches, a batch dimension whose length is
// not the samples of the first microbatch, counts and numbers out of range. Cost: linear in the
// specification, times the sizes, and in the slots of meshes.
absl::StatusOr<PipelineDescription> FromProto(
    const v1::PipelineSpec& proto, const std::vector<std::shared_ptr<const Mesh>>& named);

}  // namespace crossmesh
