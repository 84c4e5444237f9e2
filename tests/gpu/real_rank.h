#pragma once

#include "common/base/clock.h"
#include "tests/gpu/gpu_mirror.h"
#include "tests/gpu/mirrored_communicator.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/communicators/communicator_life.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/communicators/testing/communicator_under_test.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/libraries/driver_api.h"
#include "worker/gpu/libraries/nccl_api.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Which GPU the ranks of a test have.
enum class RankPlaces : uint8_t {
  kOneGpuEach,
  kAllOnFirst,  // where NCCL allows it, for which the process's environment has to ask
};

// A rank over the libraries of the machine: a GPU, staging, and the life of a communicator as the
// product lives it. Memory of tests has images on the GPU. Confined to its thread.
class RealRank final : public RankUnderTest {
 public:
  static absl::StatusOr<std::unique_ptr<RealRank>> Create(int number, RankPlaces places);

  // A communicator that is ready, of all processes of a RunRanks; the one before is over.
  absl::Status JoinAll(int size, int place, Meeting& meeting);
  // Polls until the communicator is in that state; an error when it comes to another end.
  absl::Status AwaitState(CommunicatorState state);
  // Ends the communicator, as all ranks do.
  absl::Status Destroy();

  Communicator& communicator() override { return *mirrored_; }
  CUstream stream() override { return stream_->handle(); }
  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override;
  absl::Status Synchronize() override;

  CommunicatorLife& life() { return *life_; }
  const RegisteredStaging& staging() const { return *staging_; }

 private:
  RealRank() = default;

  const RealClock clock_{};
  std::unique_ptr<const DriverApi> driver_;
  std::unique_ptr<const NcclApi> nccl_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<GpuStream> stream_;
  std::unique_ptr<GpuMirror> mirror_;
  std::list<std::vector<std::byte>> memory_;
  std::unique_ptr<RegisteredStaging> staging_;
  std::unique_ptr<CommunicatorLife> life_;
  std::unique_ptr<MirroredCommunicator> mirrored_;
};

// Runs `body` for each rank of a communicator, each in a process, with the rank's number and what
// all share. As RunRanks.
std::vector<std::string> RunRealRanks(
    RankPlaces places, int size,
    absl::FunctionRef<absl::Status(RealRank& rank, int number, Meeting& meeting)> body);

}  // namespace crossmesh
