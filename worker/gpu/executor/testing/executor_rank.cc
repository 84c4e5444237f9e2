#include "worker/gpu/executor/testing/executor_rank.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/testing/patience.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/executor/gpu_binding.h"
#include "worker/gpu/executor/gpu_task.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

void AwaitedReport::OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) {
  CHECK(!is_there()) << "a device after its task";
  devices_.push_back(report);
}

void AwaitedReport::OnTaskDone(const TaskReport& report) {
  CHECK(!is_there()) << "a second report";
  CHECK_EQ(devices_.size(), report.devices.size());
  report_ = report;
}

absl::Status AwaitedReport::status() const {
  absl::Status status = report_->status;
  for (const DeviceReport& device : devices_) status.Update(device.status);
  return status;
}

absl::StatusOr<std::unique_ptr<ExecutorRank>> ExecutorRank::Create(int number,
                                                                   const Options& options) {
  setenv("CROSSMESH_STANDIN_FIRST_DEVICE", absl::StrCat(number).c_str(), 1);
  setenv("CROSSMESH_STANDIN_KERNELS", StandInKernelsPath().c_str(), 1);
  ASSIGN_OR_RETURN(std::unique_ptr<StandIn> stand_in, StandIn::Load());
  ASSIGN_OR_RETURN(const std::vector<std::string> uuids, Gpu::Uuids(stand_in->driver()));
  ASSIGN_OR_RETURN(auto rank, CreateOn(stand_in->driver(), stand_in->nccl(), uuids.at(0), options,
                                       {.library = StandInM2nPath()}));
  rank->stand_in_ = std::move(stand_in);
  return rank;
}

absl::StatusOr<std::unique_ptr<ExecutorRank>> ExecutorRank::CreateOn(const DriverApi& driver,
                                                                     const NcclApi& nccl,
                                                                     const std::string& gpu,
                                                                     const Options& options,
                                                                     const M2nApi::Options& m2n) {
  auto rank = absl::WrapUnique(new ExecutorRank(nccl));
  rank->timeouts_ = options.timeouts;
  ASSIGN_OR_RETURN(rank->loop_, EventLoop::Create(rank->clock_, {}));
  ASSIGN_OR_RETURN(rank->gpu_, Gpu::Create(driver, gpu));
  rank->free_bytes_at_first_ = rank->FreeBytes();
  ASSIGN_OR_RETURN(rank->staging_, RegisteredStaging::Allocate(nccl, options.staging_bytes));
  ASSIGN_OR_RETURN(rank->executor_, GpuExecutor::Create(*rank->loop_, *rank->gpu_, *rank->staging_,
                                                        options.executor));
  rank->m2n_ = std::make_unique<M2nRuntime>(driver, M2nApi::Load(nccl, m2n));
  return rank;
}

absl::Status ExecutorRank::Join(int size, int place, const std::string& id) {
  life_.reset();
  ASSIGN_OR_RETURN(
      auto communicator,
      NcclCommunicator::Begin(
          nccl_,
          {.name = "test", .id = id, .rank = place, .size = size, .ctas = {}, .m2n = m2n_.get()}));
  life_ = std::make_unique<CommunicatorLife>(
      clock_, std::move(communicator),
      CommunicatorLife::Options{
          .driver = gpu_->driver(), .staging = staging_.get(), .timeouts = timeouts_});
  while (life_->Poll() != CommunicatorState::kReady) {
    if (IsOver(life_->state())) return life_->cause();
    loop_->RunOnce(absl::Microseconds(100));
  }
  communicator_ = life_->communicator();
  told_ = CommunicatorState::kReady;
  return absl::OkStatus();
}

absl::Status ExecutorRank::JoinGroups(int groups, int size, int number, Meeting& meeting) {
  groups_ = groups;
  group_ = number % groups;
  std::string id;
  for (int group = 0; group < groups; ++group) {
    meeting.Wait();  // all have read the id of the last one
    if (number == group) {
      ASSIGN_OR_RETURN(const std::string minted, MintId(nccl_));
      std::memcpy(meeting.id.internal, minted.data(), minted.size());
    }
    meeting.Wait();
    if (group == group_) id.assign(meeting.id.internal, sizeof(meeting.id.internal));
  }
  return Join(size / groups, number / groups, id);
}

absl::StatusOr<GpuTaskSpec> ExecutorRank::Spec(std::shared_ptr<const CompiledPart> compiled,
                                               const TileMemory& memory, uint32_t instance) {
  const DeviceRank device = compiled->device();
  return Spec(std::move(compiled), TilesOf(memory, device), instance);
}

absl::StatusOr<GpuTaskSpec> ExecutorRank::Spec(std::shared_ptr<const CompiledPart> compiled,
                                               const GpuTiles& tiles, uint32_t instance) {
  ASSIGN_OR_RETURN(auto binding, executor_->Bind(std::move(compiled), tiles));
  return SpecOf(std::move(binding), instance);
}

absl::StatusOr<GpuTaskSpec> ExecutorRank::Spec(std::shared_ptr<const PreparedPart> part,
                                               const GpuTiles& tiles,
                                               const CompiledPart::Options& options,
                                               uint32_t instance) {
  ASSIGN_OR_RETURN(GpuLegs legs, LegsOfCourses(*gpu_, std::move(part), tiles, options));
  ASSIGN_OR_RETURN(auto binding, executor_->Bind(std::move(legs)));
  return SpecOf(std::move(binding), instance);
}

GpuTaskSpec ExecutorRank::SpecOf(std::shared_ptr<GpuBinding> binding, uint32_t instance) {
  GpuTaskSpec spec = {.key = {.operation = 1, .epoch = 1, .instance = instance},
                      .binding = std::move(binding),
                      .communicator = communicator_,
                      .owner = this};
  spec.ranks.resize(spec.binding->part().part().tensors().devices().size(), -1);
  for (size_t device = group_; device < spec.ranks.size(); device += groups_) {
    spec.ranks[device] = static_cast<int>(device) / groups_;
  }
  return spec;
}

void ExecutorRank::RunUntil(absl::FunctionRef<bool()> condition, std::source_location where) {
  const Patience patience(where);
  while (!condition()) {
    patience.Check();
    loop_->RunOnce(absl::Milliseconds(1));
    PollCommunicator();
  }
}

absl::StatusOr<TaskReport> ExecutorRank::Run(GpuTaskSpec spec) {
  AwaitedReport awaited;
  RETURN_IF_ERROR(executor_->Start(std::move(spec), awaited));
  RunUntil([&] { return awaited.is_there(); });
  RETURN_IF_ERROR(awaited.status());
  return awaited.report();
}

absl::Status ExecutorRank::AwaitStopped() {
  RunUntil([this] { return IsOver(life_->state()); });
  return life_->state() == CommunicatorState::kHung ? life_->cause() : absl::OkStatus();
}

void ExecutorRank::PollCommunicator() {
  if (life_ == nullptr) return;
  const CommunicatorState state = life_->Poll();
  if (std::exchange(told_, state) == state) return;
  executor_->OnCommunicatorChange(*communicator_, state, life_->cause());
}

void ExecutorRank::StopCommunicator(const Communicator& communicator, const absl::Status& why) {
  CHECK_EQ(&communicator, communicator_);
  life_->Stop(why);
}

absl::Status ExecutorRank::Close() {
  if (life_ != nullptr && !IsOver(life_->state())) {
    RETURN_IF_ERROR(life_->Finalize());
    RETURN_IF_ERROR(AwaitStopped());
  }
  executor_.reset();
  staging_.reset();
  life_.reset();
  const int64_t free_bytes = FreeBytes();
  gpu_.reset();
  // Of a real GPU others take memory as well.
  if (stand_in_ == nullptr) return absl::OkStatus();
  if (free_bytes != free_bytes_at_first_) {
    return absl::InternalError(absl::StrCat("memory of the GPU: expected ", free_bytes_at_first_,
                                            " bytes free, found ", free_bytes));
  }
  const std::vector<std::string> violations = stand_in_->Violations();
  if (violations.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrJoin(violations, "; "));
}

int64_t ExecutorRank::FreeBytes() {
  const absl::StatusOr<Gpu::MemoryAmounts> amounts = gpu_->Memory();
  return amounts.ok() ? amounts->free.value() : 0;
}

GpuTiles TilesOf(const TileMemory& memory, DeviceRank device) {
  const auto addresses = [&](Side side) {
    std::vector<uint64_t> tiles;
    for (const std::byte* tile : memory.tiles(side, device).tensor) {
      tiles.push_back(reinterpret_cast<uint64_t>(tile));
    }
    return tiles;
  };
  return {.source = addresses(Side::kSource), .destination = addresses(Side::kDestination)};
}

}  // namespace crossmesh
