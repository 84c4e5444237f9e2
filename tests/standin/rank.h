#pragma once

#include "common/base/status_macros.h"
#include "tests/standin/rank_processes.h"
#include "tests/standin/stand_in.h"
#include "tests/standin/stand_in_gpu.h"

#include <cstdlib>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

// A rank of a test in its process: the stand-ins, a GPU that no other rank has, a communicator.
struct Rank {
  // `ready` waits for all ranks. Without a communicator where `has_communicator` is false.
  static absl::StatusOr<Rank> Create(int ranks, int rank, Meeting& meeting,
                                     bool has_communicator = true) {
    setenv("CROSSMESH_STANDIN_FIRST_DEVICE", absl::StrCat(rank).c_str(), 0);
    Rank made = {.ranks = ranks, .rank = rank};
    ASSIGN_OR_RETURN(made.stand_in, StandIn::Load());
    ASSIGN_OR_RETURN(made.gpu, StandInGpu::Create(*made.stand_in));
    const NcclApi& nccl = made.stand_in->nccl();
    if (rank == 0)
      RETURN_IF_ERROR(nccl.Check(nccl.ncclGetUniqueId(&meeting.id), "ncclGetUniqueId"));
    meeting.Wait();
    if (!has_communicator) return made;
    ASSIGN_OR_RETURN(made.communicator, made.gpu->MakeCommunicator(ranks, meeting.id, rank));
    return made;
  }

  const NcclApi& nccl() const { return stand_in->nccl(); }
  const DriverApi& driver() const { return stand_in->driver(); }
  absl::Status Check(ncclResult_t result) const { return nccl().Check(result, ""); }
  absl::Status Check(CUresult result) const { return driver().Check(result, ""); }

  // What a call on the communicator put on the stream has been done.
  absl::Status Await(ncclResult_t result) const {
    RETURN_IF_ERROR(Check(result));
    RETURN_IF_ERROR(gpu->Poll(communicator).status());
    return gpu->Synchronize();
  }
  // Ends all; an error if anything was done wrong.
  absl::Status End() {
    if (communicator != nullptr) RETURN_IF_ERROR(gpu->FinalizeAndDestroy(communicator));
    gpu.reset();
    const std::vector<std::string> violations = stand_in->Violations();
    if (violations.empty()) return absl::OkStatus();
    return absl::InternalError(absl::StrJoin(violations, "; "));
  }

  int ranks = 0;
  int rank = 0;
  std::unique_ptr<StandIn> stand_in;
  std::unique_ptr<StandInGpu> gpu;
  ncclComm_t communicator = nullptr;
};

}  // namespace crossmesh
