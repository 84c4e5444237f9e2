#pragma once

#include "tests/standin/control/outcome.h"
#include "tests/standin/m2n/reshard_record.h"
#include "worker/gpu/libraries/m2n_declarations.h"

namespace crossmesh {

// What a call was given. Its result is that of the library; what is the caller's mistake is a
// violation, however early the library itself finds it.
struct ReshardCall {
  ncclComm_t communicator = nullptr;
  const ncclDistTensor_t* source = nullptr;
  const ncclDistTensor_t* destination = nullptr;
  CUstream stream = nullptr;
};

// Whether descriptors are what nccl_m2n.h says, at this rank of the communicator; sets `recorded`.
Result CheckReshard(const ReshardCall& call, RecordedReshard& recorded);

}  // namespace crossmesh
