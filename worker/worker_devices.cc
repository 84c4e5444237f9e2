#include "worker/worker_devices.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/wire/communicator_codec.h"
#include "worker/arena_lender.h"
#include "worker/gpu/devices/gpu_devices.h"
#include "worker/latch.h"
#include "worker/memory/fd_server.h"
#include "worker/worker_options.h"

#include <cstdint>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {

WorkerDevices::WorkerDevices(const WorkerOptions& options, const Ports& ports)
    : options_(options),
      ports_(ports),
      devices_(options.devices),
      lender_(std::make_unique<ArenaLender>()),
      storages_([this](const StorageKey& key, ByteCount bytes) { return MakeArena(key, bytes); }) {
  lender_->Start({.data = ports_.data, .memory = ports_.memory, .transport = ports_.transport});
}

WorkerDevices::~WorkerDevices() = default;

absl::Status WorkerDevices::Open() {
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
  ASSIGN_OR_RETURN(fd_server_,
                   FdServer::Create(storages_, {.socket_path = options_.memory_socket}));
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
  for (const GpuDevices::Driver& driver : gpus_->drivers()) {
    v1::Gpu& gpu = *registration.add_gpus();
    gpu.set_device(ToString(driver.device));
    *gpu.mutable_process() = ToProto(driver.rank);
  }
}

void WorkerDevices::Describe(v1::WorkerSessionRequest::Heartbeat& heartbeat) const {
  int64_t memory_bytes = 0;
  for (const StorageStatus& storage : storages_.List()) memory_bytes += storage.bytes;
  heartbeat.set_memory_bytes(memory_bytes);
  for (const GpuDevices::Driver& driver : gpus_->drivers()) {
    if (driver.rank.incarnation != 0) *heartbeat.add_gpu_processes() = ToProto(driver.rank);
  }
}

absl::StatusOr<std::shared_ptr<Arena>> WorkerDevices::MakeArena(const StorageKey& key,
                                                                ByteCount bytes) {
  if (gpus_->Has(key.device)) return gpus_->MakeArena(key, bytes);
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, MakeHostArena(key, bytes, options_.pages));
  return lender_->Lend(std::move(arena));
}

absl::StatusOr<std::shared_ptr<Arena>> WorkerDevices::MakeBounceBuffer(ByteCount bytes) {
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, Arena::Create("crossmesh:gpu_mirror", bytes));
  return lender_->Lend(std::move(arena));
}

}  // namespace crossmesh
