#pragma once

#include "common/base/fake_clock.h"
#include "common/base/status_macros.h"
#include "tests/standin/stand_in.h"
#include "tests/standin/stand_in_gpu.h"
#include "worker/gpu/communicators/communicator_life.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/communicators/testing/communicator_under_test.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <absl/memory/memory.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

// A rank over the stand-ins: a GPU, staging, and the life of a communicator, whose deadlines pass
// when a test moves the clock. Confined to its thread.
class StandInRank final : public RankUnderTest {
 public:
  // Processes of other numbers have other GPUs, unless the environment says otherwise.
  static absl::StatusOr<std::unique_ptr<StandInRank>> Create(int number = 0) {
    setenv("CROSSMESH_STANDIN_FIRST_DEVICE", absl::StrCat(number).c_str(), 0);
    auto rank = absl::WrapUnique(new StandInRank);
    ASSIGN_OR_RETURN(rank->stand_in_, StandIn::Load());
    ASSIGN_OR_RETURN(rank->gpu_, StandInGpu::Create(*rank->stand_in_));
    ASSIGN_OR_RETURN(rank->staging_, RegisteredStaging::Allocate(rank->nccl(), 1 << 20));
    return rank;
  }

  absl::Status Begin(int size, int place, std::string id) {
    ASSIGN_OR_RETURN(
        std::unique_ptr<NcclCommunicator> communicator,
        NcclCommunicator::Begin(
            nccl(), {.name = "test", .id = std::move(id), .rank = place, .size = size}));
    life_ = std::make_unique<CommunicatorLife>(
        clock_, std::move(communicator),
        CommunicatorLife::Options{
            .driver = stand_in_->driver(), .staging = staging_.get(), .timeouts = timeouts_});
    return absl::OkStatus();
  }
  // A communicator that is ready.
  absl::Status Join(int size, int place, std::string id) {
    RETURN_IF_ERROR(Begin(size, place, std::move(id)));
    return AwaitState(CommunicatorState::kReady);
  }
  // Of this rank alone.
  absl::Status BeginAlone() {
    ASSIGN_OR_RETURN(std::string id, MintId(nccl()));
    return Begin(1, 0, std::move(id));
  }
  absl::Status JoinAlone() {
    RETURN_IF_ERROR(BeginAlone());
    return AwaitState(CommunicatorState::kReady);
  }

  // Polls until the communicator is in that state; an error when it comes to another end.
  absl::Status AwaitState(CommunicatorState state) {
    while (life_->Poll() != state) {
      if (IsOver(life_->state())) {
        return absl::Status(
            life_->cause().ok() ? absl::StatusCode::kInternal : life_->cause().code(),
            absl::StrCat(CommunicatorStateName(life_->state()), ", expected ",
                         CommunicatorStateName(state), ": ", life_->cause().message()));
      }
      std::this_thread::yield();
    }
    return absl::OkStatus();
  }

  // Sends bytes of staging to a peer, and as many from there to elsewhere in staging.
  absl::Status BeginExchange(int peer) {
    const RankMessage send = {peer, staging_->address(), 1000};
    const RankMessage receive = {peer, staging_->address() + 4096, 1000};
    return communicator().Exchange({&send, 1}, {&receive, 1}, stream());
  }

  absl::Status Destroy() {
    RETURN_IF_ERROR(life_->Finalize());
    return AwaitState(CommunicatorState::kDestroyed);
  }
  // What was done wrong since the last time.
  std::vector<std::string> TakeViolations() {
    std::vector<std::string> all = stand_in_->Violations();
    std::vector<std::string> taken(all.begin() + static_cast<ptrdiff_t>(taken_), all.end());
    taken_ = all.size();
    return taken;
  }
  // Frees all; an error if anything was done wrong.
  absl::Status Close() {
    life_.reset();
    RETURN_IF_ERROR(Synchronize());  // what was stopped is on the stream until it has ended
    staging_.reset();
    gpu_.reset();
    const std::vector<std::string> violations = TakeViolations();
    if (violations.empty()) return absl::OkStatus();
    return absl::InternalError(absl::StrJoin(violations, "; "));
  }

  Communicator& communicator() override { return *life_->communicator(); }
  CUstream stream() override { return gpu_->stream(); }
  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override {
    return gpu_->Allocate(bytes);
  }
  absl::Status Synchronize() override { return gpu_->Synchronize(); }

  const StandIn& stand_in() const { return *stand_in_; }
  const DriverApi& driver() const { return stand_in_->driver(); }
  const NcclApi& nccl() const { return stand_in_->nccl(); }
  const StandInGpu& gpu() const { return *gpu_; }
  const RegisteredStaging& staging() const { return *staging_; }
  CommunicatorLife& life() { return *life_; }
  FakeClock& clock() { return clock_; }
  const CommunicatorTimeouts& timeouts() const { return timeouts_; }

 private:
  StandInRank() = default;

  const CommunicatorTimeouts timeouts_ = {.creating = absl::Seconds(50),
                                          .exchanging = absl::Seconds(40),
                                          .finalizing = absl::Seconds(30),
                                          .revoking = absl::Seconds(20),
                                          .ending = absl::Seconds(10)};
  FakeClock clock_;
  std::unique_ptr<StandIn> stand_in_;
  std::unique_ptr<StandInGpu> gpu_;
  std::unique_ptr<RegisteredStaging> staging_;
  std::unique_ptr<CommunicatorLife> life_;
  size_t taken_ = 0;  // violations
};

}  // namespace crossmesh
