#pragma once

#include "common/mesh/layout_rules.h"
#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "common/plan/proof.h"
#include "common/plan/tensor_table.h"
#include "common/reshard/redistribution_inputs.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// All that a specification says of what to plan, decoded; the planner's caller adds what it leaves
// open.
struct ReshardInputs {
  struct Side {
    std::shared_ptr<const Mesh> mesh;
    LayoutRules rules;
  };

  std::shared_ptr<const Manifest> manifest;
  Side source;
  Side destination;
  std::vector<std::string> replica_axes;
  std::optional<Topology> topology;
  std::string strategy;  // by name; may be empty, or no strategy's
  RedistributionInputs redistribution;
  uint64_t seed = 0;
  int64_t chunk_bytes = 0;             // 0: the planner chooses
  double nic_share = 1;                // of every NIC's rate; above 0, at most 1
  bool no_broadcasts = false;          // relays only, between GPUs as well
  std::optional<BindingMode> binding;  // none: the planner chooses
  bool shared_storage = false;
  ProofLimits limits;
};

// As the one of reshard_tensors.h.
absl::StatusOr<TensorTable> BuildReshardTensors(const ReshardInputs& inputs);

}  // namespace crossmesh
