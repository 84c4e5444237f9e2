#pragma once

#include "common/base/byte_count.h"
#include "common/mesh/layout.h"
#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/mesh/topology.h"
#include "planner/pipeline/profile.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace crossmesh {

// What v1.PipelineSpec says, decoded: names are found, layouts parsed, sizes checked.
struct PipelineDescription {
  struct Rank {
    std::shared_ptr<const Mesh> mesh;
    std::optional<ByteCount> device_bytes_max;
  };
  // Times and activations are those of a microbatch of the first size.
  struct Stage : StageProfile {
    std::string name;
  };
  struct Tensor {
    TensorSpec tensor;
    std::optional<int32_t> batch_dimension;
    Layout source;
    Layout destination;
  };
  struct Edge {
    StageIndex from = 0;
    StageIndex to = 0;
    std::vector<Tensor> tensors;
    std::optional<double> forward_seconds;
    std::optional<double> backward_seconds;
  };

  std::string name;
  std::vector<Rank> ranks;
  std::vector<Stage> stages;
  std::vector<Edge> edges;
  std::vector<PairProfile> pairs;  // times of a microbatch of the first size
  std::vector<int64_t> samples;    // by microbatch
  int32_t sequence_parts = 1;      // so many microbatches are parts of the same sequences
  std::optional<Topology> topology;
};

}  // namespace crossmesh
