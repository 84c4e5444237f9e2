#include "worker/worker_devices.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/wire/communicator_codec.h"
#include "worker/arena_lender.h"
#include "worker/gpu/devices/gpu_devices.h"
#include "worker/host_report.h"
#include "worker/latch.h"
#include "worker/memory/fd_server.h"
#include "worker/memory/lent_allocation.h"
#include "worker/worker_options.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

absl::Status CheckName(const StorageKey& key) {
  // The pattern of the API's names is that of hosts.
  if (IsHostName(key.name)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("storage name: expected [a-z0-9._-]{1,63}, found \"",
                   absl::CHexEscape(key.name.substr(0, 63)), "\""));
}

ByteCount MemoryMax(const WorkerOptions& options) {
  return options.memory_max > 0 ? ByteCount(options.memory_max) : MemoryMaxByDefault();
}

// Of arrays that no task uses: a small part of what may be used, which the system has to spare.
ByteCount KeptBytesMax(ByteCount memory_max) {
  constexpr int64_t kBytesMax = int64_t{256} << 20;
  return ByteCount(std::min(kBytesMax, memory_max.value() / 16));
}

std::string NameOf(const StorageKey& key) {
  return absl::StrCat("crossmesh:", key.name, ":", ToString(key.device));
}

// What an operation has left in part; while one writes, that is nobody's concern.
void DescribeDirty(const StorageTable& storages, v1::WorkerSessionRequest::Heartbeat& heartbeat) {
  constexpr int kDirtyStoragesMax = 64;
  for (const StorageStatus& storage : storages.List()) {
    if (storage.state != StorageState::kDirty || storage.writing) continue;
    if (heartbeat.dirty_storages_size() == kDirtyStoragesMax) return;
    heartbeat.add_dirty_storages(
        absl::StrCat(storage.key.name, " on ", ToString(storage.key.device)));
  }
}

// All processes that drive a GPU, if there is one.
bool HaveM2n(std::span<const GpuDevices::Driver> drivers) {
  bool any = false;
  for (const GpuDevices::Driver& driver : drivers) {
    if (driver.rank.incarnation == 0) continue;
    if (!driver.has_m2n) return false;
    any = true;
  }
  return any;
}

}  // namespace

WorkerDevices::WorkerDevices(const WorkerOptions& options, const Ports& ports)
    : options_(options),
      ports_(ports),
      devices_(options.devices),
      lender_(std::make_unique<ArenaLender>()),
      memory_(MemoryMax(options), ByteCount(options.executor.staging_bytes)),
      kept_arrays_(KeptBytesMax(MemoryMax(options))),
      storages_([this](const StorageKey& key, ByteCount bytes) { return MakeArena(key, bytes); }) {
  lender_->Start({.data = ports_.data, .memory = ports_.memory, .transport = ports_.transport});
}

WorkerDevices::~WorkerDevices() = default;

absl::Status WorkerDevices::Open() {
  if (memory_.used_bytes() > memory_.bytes_max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", options_.name, ": expected at least ", memory_.used_bytes(),
        " bytes of memory, which staging takes, found ", memory_.bytes_max(), " (--memory-max)"));
  }
  EventLoop& data = ports_.data;
  ASSIGN_OR_RETURN(
      gpus_,
      GpuDevices::Create(data, ports_.clock,
                         {.gpus = options_.gpus, .process = options_.gpu_process}, ports_.metrics));
  // Not earlier: processes of GPUs are children of the loop's thread, and end with it.
  data.Start();
  Latch latch;
  absl::Status opened;
  data.Post([&] {
    gpus_->Open([&](absl::Status status) {
      opened = std::move(status);
      latch.Set();
    });
  });
  latch.WaitFor(ports_.clock, absl::InfiniteDuration());
  for (const GpuDevices::Driver& driver : gpus_->drivers()) devices_.push_back(driver.device);
  if (!opened.ok()) {
    LogWarning("worker_has_no_gpus", {{"worker_id", options_.name}, {"cause", opened.ToString()}});
  }
  if (!devices_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "worker ", options_.name, ": expected at least one device, found none: ", opened.message()));
}

absl::Status WorkerDevices::ServeMemory() {
  if (options_.memory_socket.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(fd_server_, FdServer::Create(storages_, {.socket_path = options_.memory_socket,
                                                            .user_memory = MakerOfUserMemory()}));
  return absl::OkStatus();
}

void WorkerDevices::StopServingMemory() {
  if (fd_server_ != nullptr) fd_server_->Stop();
}

void WorkerDevices::StopGpus() {
  ports_.data.Post([this] {
    if (gpus_ != nullptr) gpus_->Stop();
  });
}

void WorkerDevices::StopLending() { lender_->Stop(); }

void WorkerDevices::Describe(v1::WorkerSessionRequest::Register& registration) const {
  const std::vector<GpuDevices::Driver> drivers = gpus_->drivers();
  registration.set_m2n(HaveM2n(drivers));
  for (const GpuDevices::Driver& driver : drivers) {
    v1::Gpu& gpu = *registration.add_gpus();
    gpu.set_device(ToString(driver.device));
    *gpu.mutable_process() = ToProto(driver.rank);
    if (driver.hardware.has_value()) *gpu.mutable_hardware() = *driver.hardware;
  }
  if (registration.gpus().empty()) return;
  const std::string root = absl::StrCat(options_.gpu_process.system_root, "/");
  std::optional<v1::Host> host = ReportHost(ReadSystemDevices(root), registration.gpus());
  if (host.has_value()) *registration.mutable_described_host() = *std::move(host);
}

void WorkerDevices::Describe(v1::WorkerSessionRequest::Heartbeat& heartbeat) const {
  DescribeDirty(storages_, heartbeat);
  heartbeat.set_memory_bytes(storages_.Bytes().total());
  const std::vector<GpuDevices::Driver> drivers = gpus_->drivers();
  heartbeat.set_m2n(HaveM2n(drivers));
  for (const GpuDevices::Driver& driver : drivers) {
    if (driver.rank.incarnation != 0) *heartbeat.add_gpu_processes() = ToProto(driver.rank);
  }
}

bool WorkerDevices::HasGpu(const DeviceId& device) const { return gpus_->Has(device); }

absl::StatusOr<std::shared_ptr<Arena>> WorkerDevices::MakeArena(const StorageKey& key,
                                                                ByteCount bytes) {
  RETURN_IF_ERROR(CheckName(key));
  if (gpus_->Has(key.device)) return gpus_->MakeArena(key, bytes);
  RETURN_IF_ERROR(CheckIsOwn(key));
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena,
                   memory_.MakeArena(NameOf(key), bytes, options_.pages));
  return lender_->Lend(std::move(arena));
}

absl::StatusOr<std::shared_ptr<Arena>> WorkerDevices::MakeArrays(const DeviceId& device,
                                                                 ByteCount bytes) {
  const StorageKey key = {.name = "steps", .device = device};
  RETURN_IF_ERROR(CheckIsOwn(key));
  ASSIGN_OR_RETURN(MemoryBudget::Share share, memory_.Take(NameOf(key), bytes));
  const auto make = [&]() -> absl::StatusOr<std::shared_ptr<Arena>> {
    ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena,
                     Arena::Create(NameOf(key), bytes, options_.pages));
    return lender_->Lend(std::move(arena));
  };
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, kept_arrays_.Take(bytes, make));
  return MemoryBudget::Bind(std::move(arena), std::move(share));
}

UserMemory::Maker WorkerDevices::MakerOfUserMemory() {
  return {.lend = [this](const StorageKey& key, ByteCount bytes,
                         LentAllocation allocation) -> absl::StatusOr<std::shared_ptr<Arena>> {
            RETURN_IF_ERROR(CheckIsGpu(key));
            return gpus_->LendArena(key, bytes, std::move(allocation));
          },
          .bind = [this](const StorageKey& key, ByteCount bytes,
                         std::vector<BoundPiece> pieces) -> absl::StatusOr<std::shared_ptr<Arena>> {
            RETURN_IF_ERROR(CheckIsGpu(key));
            return gpus_->BindArena(key, bytes, std::move(pieces));
          },
          .end = [this](const StorageKey& key, const std::shared_ptr<Arena>& lent,
                        const absl::Status& why) { gpus_->EndLoan(key, lent, why); }};
}

absl::Status WorkerDevices::CheckIsGpu(const StorageKey& key) const {
  RETURN_IF_ERROR(CheckName(key));
  if (gpus_->Has(key.device)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("storage \"", key.name, "\": expected a GPU of worker ", options_.name,
                   " for memory of a user process, found device ", ToString(key.device)));
}

absl::Status WorkerDevices::CheckIsOwn(const StorageKey& key) const {
  if (std::ranges::find(devices_, key.device) != devices_.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "storage \"", key.name, "\": expected a device of worker ", options_.name, ", which has ",
      absl::StrJoin(devices_, ", ", absl::StreamFormatter()), ", found ", ToString(key.device)));
}

absl::StatusOr<std::shared_ptr<Arena>> WorkerDevices::MakeBounceBuffer(ByteCount bytes) {
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena,
                   memory_.MakeArena("crossmesh:bounce_buffer", bytes));
  return lender_->Lend(std::move(arena));
}

}  // namespace crossmesh
