#pragma once

#include "worker/gpu/communicators/communicator.h"
#include "worker/gpu/libraries/nccl_api.h"

#include <absl/strings/string_view.h>
#include <nccl.h>

namespace crossmesh {

// The call of NCCL for a collective that was checked (communicator_checks.h), and its name.
ncclResult_t CallCollective(const NcclApi& nccl, const Collective& collective, ncclComm_t handle,
                            CUstream stream);
absl::string_view NameOfCall(CollectiveKind kind);

}  // namespace crossmesh
