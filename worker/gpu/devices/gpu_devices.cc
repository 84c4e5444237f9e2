#include "worker/gpu/devices/gpu_devices.h"

#include "common/base/free_space.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/communicators/shared_memory.h"
#include "worker/gpu/process/child_environment.h"
#include "worker/memory/lent_allocation.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using State = GpuDevice::State;

absl::Status CheckNames(const std::vector<GpuName>& names) {
  std::set<DeviceId> devices;
  std::set<std::string> gpus;
  for (const GpuName& name : names) {
    RETURN_IF_ERROR(Validate(name.device));
    if (!devices.insert(name.device).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "device ", ToString(name.device), ": expected one GPU, found ", name.gpu, " as well"));
    }
    if (!gpus.insert(name.gpu).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "GPU ", name.gpu, ": expected one device, found ", ToString(name.device), " as well"));
    }
  }
  return absl::OkStatus();
}

// NCCL needs none where all GPUs reach each other over NVLink alone, so it is no error yet.
void WarnOfLittleSharedMemory(int64_t gpus) {
  const std::optional<int64_t> free = FreeBytesAt("/dev/shm");
  if (!free.has_value()) return;
  const std::optional<std::string> shortage = SharedMemoryShortage(*free, gpus);
  if (!shortage.has_value()) return;
  LogWarning("little_shared_memory", {{"cause", *shortage}, {"advice", kSharedMemoryAdvice}});
}

// What is down is tried again, for as long as it takes: the worker goes on without it.
bool IsSettled(State state) { return state != State::kStarting; }

}  // namespace

absl::StatusOr<std::unique_ptr<GpuDevices>> GpuDevices::Create(EventLoop& loop, const Clock& clock,
                                                               const Options& options,
                                                               WorkerMetrics& metrics) {
  RETURN_IF_ERROR(CheckNames(options.gpus));
  return absl::WrapUnique(new GpuDevices(loop, clock, options, metrics));
}

GpuDevices::GpuDevices(EventLoop& loop, const Clock& clock, const Options& options,
                       WorkerMetrics& metrics)
    : loop_(loop), start_limit_(options.process.start_limit), metrics_(metrics) {
  for (const GpuName& name : options.gpus) {
    GpuProcessOptions process = options.process;
    process.gpu = name.gpu;
    GpuDevice::Options of_one = {.device = name.device, .process = std::move(process)};
    gpus_[name.device] = std::make_unique<GpuDevice>(
        loop, clock, std::move(of_one), [this](const GpuDevice& gpu) { OnGpuChange(gpu); });
  }
}

void GpuDevices::Open(absl::AnyInvocable<void(absl::Status)> opened) {
  NoteDrivers();
  if (gpus_.empty()) return opened(absl::OkStatus());
  opened_ = std::move(opened);
  WarnOfLittleSharedMemory(std::ssize(gpus_));
  for (const ChildVariable& variable : VariablesNotInherited(environ)) {
    LogWarning("gpu_variable_not_inherited",
               {{"variable", variable.name}, {"reason", variable.reason}});
  }
  // A GPU that does not begin does not hold up the worker: it may be up later, or never.
  open_limit_ = loop_.RunAfter(start_limit_, [this] {
    StartOthers();
    EndOpening(absl::OkStatus());
  });
  // What the first one finds missing on this host, the others need not look for.
  gpus_.begin()->second->Start();
}

void GpuDevices::OnGpuChange(const GpuDevice& gpu) {
  // First: what hears of the change below reads the drivers.
  NoteDrivers();
  RecordStates();
  if (gpu.state() == State::kDown) metrics_.GpuProcessLost();
  if (opened_ != nullptr) return GoOnOpening(gpu);
  if (on_change_) on_change_();
}

void GpuDevices::GoOnOpening(const GpuDevice& gpu) {
  const bool is_first = &gpu == gpus_.begin()->second.get();
  if (is_first && gpu.state() == State::kGivenUp && absl::IsFailedPrecondition(gpu.cause())) {
    GiveUpAll(gpu.cause());
    return EndOpening(gpu.cause());
  }
  // Up, down or given up for a reason of its own: the host has a driver.
  if (is_first) StartOthers();
  const bool all = std::ranges::all_of(
      gpus_, [](const auto& entry) { return IsSettled(entry.second->state()); });
  if (all) EndOpening(absl::OkStatus());
}

void GpuDevices::StartOthers() {
  if (std::exchange(are_others_started_, true)) return;
  for (auto it = std::next(gpus_.begin()); it != gpus_.end(); ++it) it->second->Start();
}

void GpuDevices::EndOpening(const absl::Status& status) {
  loop_.Cancel(open_limit_);
  std::exchange(opened_, nullptr)(status);
}

void GpuDevices::GiveUpAll(const absl::Status& why) {
  for (const auto& [device, gpu] : gpus_) gpu->GiveUp(why);
  RecordStates();
  MutexLock lock(mutex_);
  drivers_.clear();
}

void GpuDevices::Stop() {
  std::vector<GpuDevice*> gpus;
  for (const auto& [device, gpu] : gpus_) gpus.push_back(gpu.get());
  GpuDevice::StopAll(gpus);
}

GpuDevice* GpuDevices::Find(const DeviceId& device) const {
  const auto found = gpus_.find(device);
  return found == gpus_.end() ? nullptr : found->second.get();
}

absl::StatusOr<GpuDevice*> GpuDevices::FindRank(const RankName& rank) const {
  const auto found = std::ranges::find_if(
      gpus_, [&](const auto& entry) { return entry.second->gpu() == rank.gpu; });
  if (found == gpus_.end()) {
    return absl::NotFoundError(
        absl::StrCat("rank ", rank.ToString(), ": expected a GPU of this worker, found another"));
  }
  GpuDevice& gpu = *found->second;
  if (gpu.rank() == rank) return &gpu;
  return absl::UnavailableError(
      absl::StrCat("rank ", rank.ToString(), ": expected the process that drives the GPU, found ",
                   gpu.state() == State::kUp ? gpu.rank().ToString()
                                             : absl::StrCat("none: ", gpu.cause().message())));
}

void GpuDevices::Admit(const RankName& rank, uint64_t epoch, Admitted admitted) {
  if (epoch < epoch_) {
    return admitted(absl::AbortedError(absl::StrCat("rank ", rank.ToString(), ": expected epoch ",
                                                    epoch_, " or later, found ", epoch)));
  }
  if (epoch > epoch_) BeginEpoch(epoch);
  auto find = [this, rank, admitted = std::move(admitted)]() mutable { admitted(FindRank(rank)); };
  // Only when it is let in: by then another process may drive the GPU.
  if (epochs_open_ == 0) return find();
  waiting_.emplace_back(std::move(find));
}

void GpuDevices::BeginEpoch(uint64_t epoch) {
  epoch_ = epoch;
  for (const auto& [device, gpu] : gpus_) {
    // Another process has nothing of earlier ones.
    if (!gpu->process().is_up()) continue;
    ++epochs_open_;
    v1::GpuRequest request;
    request.mutable_begin_epoch()->set_epoch(epoch);
    // After any answer nothing of them is left, or their process will be gone.
    gpu->process().Call(
        std::move(request),
        [this](const absl::StatusOr<GpuProcess::Reply>& /*reply*/) { OnEpochBegun(); });
  }
}

void GpuDevices::OnEpochBegun() {
  if (--epochs_open_ > 0) return;
  for (auto& admit : std::exchange(waiting_, {})) admit();
}

absl::StatusOr<std::shared_ptr<Arena>> GpuDevices::MakeArena(const StorageKey& key,
                                                             ByteCount bytes) const {
  return Find(key.device)->arenas().Make(key.name, bytes);
}

absl::StatusOr<std::shared_ptr<Arena>> GpuDevices::LendArena(const StorageKey& key, ByteCount bytes,
                                                             LentAllocation allocation) const {
  return Find(key.device)->arenas().Lend(key.name, bytes, std::move(allocation));
}

absl::StatusOr<std::shared_ptr<Arena>> GpuDevices::BindArena(const StorageKey& key, ByteCount bytes,
                                                             std::vector<BoundPiece> pieces) const {
  return Find(key.device)->arenas().Bind(key.name, bytes, std::move(pieces));
}

void GpuDevices::EndLoan(const StorageKey& key, std::shared_ptr<Arena> lent,
                         const absl::Status& why) const {
  Find(key.device)->arenas().EndLoan(std::move(lent), why);
}

std::vector<GpuDevices::Driver> GpuDevices::drivers() const {
  MutexLock lock(mutex_);
  return drivers_;
}

void GpuDevices::NoteDrivers() {
  std::vector<Driver> drivers;
  for (const auto& [device, gpu] : gpus_) {
    drivers.push_back({.device = device,
                       .rank = gpu->rank(),
                       .has_m2n = gpu->has_m2n(),
                       .hardware = gpu->hardware()});
  }
  MutexLock lock(mutex_);
  drivers_ = std::move(drivers);
}

void GpuDevices::RecordStates() const {
  const auto count = [this](auto is_counted) {
    return std::ranges::count_if(
        gpus_, [&](const auto& entry) { return is_counted(entry.second->state()); });
  };
  metrics_.SetGpus(count([](State state) { return state == State::kUp; }),
                   count([](State state) { return state != State::kUp; }));
}

}  // namespace crossmesh
