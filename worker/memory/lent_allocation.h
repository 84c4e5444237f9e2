#pragma once

#include "common/base/unique_fd.h"

#include <string>

namespace crossmesh {

// Memory of a GPU that a user process lends, by one of the two.
struct LentAllocation {
  UniqueFd descriptor = UniqueFd();  // of an allocation by address range
  std::string ipc_handle = {};       // of one of cudaMalloc: the bytes of its cudaIpcMemHandle_t
};

}  // namespace crossmesh
