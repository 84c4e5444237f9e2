#include "common/reshard/reshard_inputs.h"

#include "common/reshard/reshard_tensors.h"

namespace crossmesh {

absl::StatusOr<TensorTable> BuildReshardTensors(const ReshardInputs& inputs) {
  return BuildReshardTensors(*inputs.manifest, {*inputs.source.mesh, inputs.source.rules},
                             {*inputs.destination.mesh, inputs.destination.rules},
                             inputs.replica_axes);
}

}  // namespace crossmesh
