#include "planner/reshard/reshard_request.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "planner/reshard/strategy.h"

#include <algorithm>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

// On GPUs in place, since a shadow takes their memory twice; but not where the only memory would be
// overwritten while it is read.
BindingMode DefaultBinding(const ReshardInputs& inputs, const Topology& topology) {
  if (inputs.redistribution.release_source) return BindingMode::kInPlace;
  if (inputs.destination.mesh == nullptr || inputs.shared_storage) return BindingMode::kShadow;
  const auto is_gpu = [&](const DeviceId& device) { return topology.FindGpu(device) != nullptr; };
  return std::ranges::all_of(inputs.destination.mesh->devices(), is_gpu) ? BindingMode::kInPlace
                                                                         : BindingMode::kShadow;
}

}  // namespace

absl::StatusOr<ReshardRequest> RequestWithoutTensors(const ReshardInputs& inputs,
                                                     const Topology& topology) {
  ReshardRequest request = {.topology = inputs.topology.value_or(topology),
                            .seed = inputs.seed,
                            .chunk_bytes = inputs.chunk_bytes,
                            .nic_share = inputs.nic_share,
                            .no_broadcasts = inputs.no_broadcasts,
                            .no_collectives = inputs.no_broadcasts,
                            .binding = inputs.binding.value_or(
                                DefaultBinding(inputs, inputs.topology.value_or(topology))),
                            .shared_storage = inputs.shared_storage,
                            .device_bytes_max = inputs.limits.device_bytes_max,
                            .redistribution = inputs.redistribution};
  if (inputs.strategy.empty()) {
    request.no_m2n = "no worker has said that its GPUs have it";
  } else {
    ASSIGN_OR_RETURN(request.strategy, At("spec.strategy", ParseStrategy(inputs.strategy)));
  }
  return request;
}

}  // namespace crossmesh
