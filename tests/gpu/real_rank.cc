#include "tests/gpu/real_rank.h"

#include "common/base/status_macros.h"
#include "tests/gpu/real_gpu.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/communicators/testing/mint_id_of_all.h"

#include <cstdlib>
#include <thread>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kStagingBytes = int64_t{1} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<RealRank>> RealRank::Create(int number, RankPlaces places) {
  if (places == RankPlaces::kAllOnFirst) setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  auto rank = absl::WrapUnique(new RealRank);
  ASSIGN_OR_RETURN(rank->driver_, LoadDriver());
  ASSIGN_OR_RETURN(rank->nccl_, LoadNccl());
  ASSIGN_OR_RETURN(const std::vector<std::string> uuids, Gpu::Uuids(*rank->driver_));
  const int gpu = places == RankPlaces::kOneGpuEach ? number : 0;
  ASSIGN_OR_RETURN(rank->gpu_, Gpu::Create(*rank->driver_, uuids.at(gpu)));
  ASSIGN_OR_RETURN(rank->stream_, GpuStream::Create(*rank->gpu_));
  ASSIGN_OR_RETURN(rank->mirror_, GpuMirror::Create(*rank->gpu_));
  ASSIGN_OR_RETURN(rank->staging_, RegisteredStaging::Allocate(*rank->nccl_, kStagingBytes));
  return rank;
}

absl::Status RealRank::JoinAll(int size, int place, Meeting& meeting) {
  meeting.Wait();  // all have read the id of the last one
  ASSIGN_OR_RETURN(std::string id, MintIdOfAll(*nccl_, place, meeting));
  ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> communicator,
                   NcclCommunicator::Begin(
                       *nccl_, {.name = "test", .id = std::move(id), .rank = place, .size = size}));
  life_ = std::make_unique<CommunicatorLife>(
      clock_, std::move(communicator),
      CommunicatorLife::Options{.driver = *driver_, .staging = staging_.get()});
  RETURN_IF_ERROR(AwaitState(CommunicatorState::kReady));
  mirrored_ = std::make_unique<MirroredCommunicator>(*life_->communicator(), *mirror_);
  return absl::OkStatus();
}

absl::Status RealRank::AwaitState(CommunicatorState state) {
  while (life_->Poll() != state) {
    if (IsOver(life_->state())) {
      return absl::InternalError(absl::StrCat(CommunicatorStateName(life_->state()), ", expected ",
                                              CommunicatorStateName(state), ": ",
                                              life_->cause().ToString()));
    }
    std::this_thread::yield();
  }
  return absl::OkStatus();
}

absl::Status RealRank::Destroy() {
  RETURN_IF_ERROR(life_->Finalize());
  return AwaitState(CommunicatorState::kDestroyed);
}

absl::StatusOr<std::span<std::byte>> RealRank::Allocate(size_t bytes) {
  std::vector<std::byte>& region = memory_.emplace_back(bytes);
  RETURN_IF_ERROR(mirror_->Add(region));
  return std::span(region);
}

absl::Status RealRank::Synchronize() {
  RETURN_IF_ERROR(
      gpu_->Check(driver_->cuStreamSynchronize(stream_->handle()), "cuStreamSynchronize"));
  return mirror_->CopyFromGpu();
}

std::vector<std::string> RunRealRanks(
    RankPlaces places, int size,
    absl::FunctionRef<absl::Status(RealRank& rank, int number, Meeting& meeting)> body) {
  return RunRanks(size, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, RealRank::Create(number, places));
    RETURN_IF_ERROR(rank->JoinAll(size, number, meeting));
    return body(*rank, number, meeting);
  });
}

}  // namespace crossmesh
