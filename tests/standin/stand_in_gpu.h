#pragma once

#include "tests/standin/stand_in.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A device for a test: its primary context, current on the thread that made this, a stream, and
// memory. Gives all of it back when it goes. Confined to its thread.
class StandInGpu {
 public:
  static absl::StatusOr<std::unique_ptr<StandInGpu>> Create(const StandIn& stand_in,
                                                            int device = 0);
  ~StandInGpu();
  StandInGpu(const StandInGpu&) = delete;
  StandInGpu& operator=(const StandInGpu&) = delete;

  CUstream stream() const { return stream_; }
  // Of ncclMemAlloc; a test may read and write it while no queued work does.
  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes);
  absl::Status Synchronize() const;
  absl::StatusOr<int64_t> FreeBytes() const;

  // Begins a communicator that does not block.
  absl::StatusOr<ncclComm_t> InitCommunicator(int ranks, const ncclUniqueId& id, int rank) const;
  // Asks for the state until it is no longer in progress.
  absl::Status Poll(ncclComm_t communicator) const;
  // Both of them.
  absl::StatusOr<ncclComm_t> MakeCommunicator(int ranks, const ncclUniqueId& id, int rank) const;
  absl::Status FinalizeAndDestroy(ncclComm_t communicator) const;

 private:
  explicit StandInGpu(const StandIn& stand_in) : stand_in_(stand_in) {}

  const StandIn& stand_in_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace crossmesh
