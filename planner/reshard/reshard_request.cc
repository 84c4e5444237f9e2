#include "planner/reshard/reshard_request.h"

#include "planner/reshard/strategy.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<ReshardRequest> RequestWithoutTensors(const ReshardInputs& inputs,
                                                     const Topology& topology) {
  ReshardRequest request = {.topology = inputs.topology.value_or(topology),
                            .seed = inputs.seed,
                            .chunk_bytes = inputs.chunk_bytes,
                            .nic_share = inputs.nic_share,
                            .no_broadcasts = inputs.no_broadcasts,
                            .binding = inputs.binding,
                            .shared_storage = inputs.shared_storage};
  if (!inputs.strategy.empty()) {
    const absl::StatusOr<Strategy> strategy = ParseStrategy(inputs.strategy);
    if (!strategy.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec.strategy: ", strategy.status().message()));
    }
    request.strategy = *strategy;
  }
  return request;
}

}  // namespace crossmesh
