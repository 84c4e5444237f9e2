#pragma once

#include "tests/standin/stand_in_fixture.h"

namespace crossmesh {

// Adds communicators of one rank. A test ends them.
class NcclTest : public StandInTest {
 protected:
  ncclUniqueId MakeId() const {
    ncclUniqueId id = {};
    EXPECT_OK(Check(nccl().ncclGetUniqueId(&id)));
    return id;
  }
  absl::StatusOr<ncclComm_t> MakeCommunicator() const {
    return gpu_->MakeCommunicator(1, MakeId(), 0);
  }
  // One that blocks.
  ncclComm_t MakeBlocking() const {
    ncclComm_t communicator = nullptr;
    EXPECT_OK(Check(nccl().ncclCommInitRankConfig(&communicator, 1, MakeId(), 0, nullptr)));
    return communicator;
  }

  // The rank sends to itself.
  ncclResult_t Exchange(ncclComm_t communicator, std::span<std::byte> from,
                        std::span<std::byte> to) const {
    nccl().ncclGroupStart();
    nccl().ncclSend(from.data(), from.size(), ncclUint8, 0, communicator, gpu_->stream());
    nccl().ncclRecv(to.data(), to.size(), ncclUint8, 0, communicator, gpu_->stream());
    return nccl().ncclGroupEnd();
  }
};

}  // namespace crossmesh
