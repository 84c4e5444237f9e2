#pragma once

#include "common/base/status_macros.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/communicators/nccl_communicator.h"

#include <cstring>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// The id of a communicator of all processes of RunRanks, which number 0 mints. Waits for all.
inline absl::StatusOr<std::string> MintIdOfAll(const NcclApi& nccl, int number, Meeting& meeting) {
  if (number == 0) {
    ASSIGN_OR_RETURN(const std::string id, MintId(nccl));
    std::memcpy(meeting.id.internal, id.data(), id.size());
  }
  meeting.Wait();
  return std::string(meeting.id.internal, sizeof(meeting.id.internal));
}

}  // namespace crossmesh
