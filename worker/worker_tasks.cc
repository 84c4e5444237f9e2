#include "worker/worker_tasks.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "worker/data_plane.h"
#include "worker/gpu/tasks/bridged_task_runner.h"
#include "worker/gpu/tasks/gpu_task_runner.h"
#include "worker/gpu/tasks/task_router.h"
#include "worker/latch.h"
#include "worker/tasks/task_table.h"
#include "worker/worker_devices.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <absl/strings/str_cat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// For tasks that were cancelled to end: longer than the default stall limit.
constexpr absl::Duration kCancelGrace = absl::Seconds(10);
// For the control loop to say that nothing runs.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(100);

// Of the host. Bounce buffers of GPUs must not crowd out storages.
ByteCount HalfOfMemory() {
  return ByteCount(int64_t{sysconf(_SC_PHYS_PAGES)} / 2 * sysconf(_SC_PAGE_SIZE));
}

}  // namespace

WorkerTasks::WorkerTasks(Options options, const Ports& ports)
    : options_(std::move(options)), ports_(ports) {}

WorkerTasks::~WorkerTasks() = default;

absl::Status WorkerTasks::Open() {
  EpochFence fence;
  if (!options_.state_folder.empty()) {
    ASSIGN_OR_RETURN(fence, EpochFence::Open(absl::StrCat(options_.state_folder, "/epoch")));
  }
  WorkerDevices& devices = ports_.devices;
  gpu_runner_ = std::make_unique<GpuTaskRunner>(ports_.data, devices.gpus());
  bridge_ = std::make_unique<BridgedTaskRunner>(
      BridgedTaskRunner::Ports{
          .loop = ports_.data,
          .gpus = devices.gpus(),
          .executor = ports_.data_plane.executor(),
          .make_arena = [&devices](ByteCount bytes) { return devices.MakeBounceBuffer(bytes); }},
      BridgedTaskRunner::Options{.bounce_bytes_max = HalfOfMemory()});
  router_ = std::make_unique<TaskRouter>(*gpu_runner_, *bridge_);
  table_ = std::make_unique<TaskTable>(TaskTable::Options{.worker = options_.worker,
                                                          .devices = devices.devices(),
                                                          .link = ports_.data_plane.link()},
                                       TaskTable::Ports{.control = ports_.control,
                                                        .data = ports_.data,
                                                        .runner = *router_,
                                                        .storages = devices.storages(),
                                                        .clock = ports_.clock,
                                                        .metrics = ports_.metrics},
                                       std::move(fence));
  return absl::OkStatus();
}

void WorkerTasks::Finish(absl::Duration drain_timeout) {
  // Shared with the loop, which may call it after this thread has stopped to wait.
  const auto idle = std::make_shared<Latch>();
  ports_.control.Post([this, idle] { table_->Drain([idle] { idle->Set(); }); });
  if (idle->WaitFor(ports_.clock, std::max(drain_timeout, kAnswerTime))) return;
  LogWarning("worker_cancels_tasks", {{"worker_id", options_.worker},
                                      {"drain_seconds", absl::ToDoubleSeconds(drain_timeout)}});
  ports_.control.Post([this] {
    table_->CancelAll(absl::CancelledError(absl::StrCat("worker ", options_.worker, " stops")));
  });
  idle->WaitFor(ports_.clock, kCancelGrace);
}

}  // namespace crossmesh
