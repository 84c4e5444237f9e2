#pragma once

#include "common/plan/m2n_transfer.h"
#include "worker/gpu/communicators/communicator.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/executor/gpu_legs.h"

#include <memory>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What NCCL M2N is told of the tensors of a compiled part at its device, in manifest order; of
// other compiled parts nothing. Immutable.
class M2nTensorList {
 public:
  // What CheckTile refuses. InvalidArgument where M2N cannot be asked, which no proven part says.
  // Cost: linear in tensors, and in slots for each group of them.
  static absl::StatusOr<std::unique_ptr<const M2nTensorList>> Create(const CompiledPart& compiled,
                                                                     const GpuTiles& tiles);

  std::span<const M2nTensor> tensors() const { return tensors_; }

 private:
  std::vector<M2nTransfer> transfers_;  // [group]
  std::vector<M2nTensor> tensors_;
};

}  // namespace crossmesh
