#include "worker/gpu/tasks/bridged_task_runner.h"

#include "common/base/status_macros.h"
#include "worker/executor/prepared_part.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

struct Uses {
  bool reads = false;   // its source tiles
  bool writes = false;  // its destination tiles
};

Uses UsesOf(const PreparedPart& part, DeviceRank device) {
  const bool copies =
      std::ranges::find(part.copies(), device, &PreparedPart::Copy::device) != part.copies().end();
  Uses uses = {.reads = copies, .writes = copies};
  for (const PreparedPart::Node& node : part.nodes()) {
    if (node.device == device) (node.root ? uses.reads : uses.writes) = true;
  }
  return uses;
}

}  // namespace

absl::Status BridgedTaskRunner::Start(TaskSpec spec, TaskObserver& observer) {
  const TaskKey key = spec.key;
  if (tasks_.contains(key)) {
    return absl::AlreadyExistsError(absl::StrCat("operation ", key.operation, " of epoch ",
                                                 key.epoch, ", plan ", key.plan, ", instance ",
                                                 key.instance, " runs here"));
  }
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<DeviceBridge>> bridges, BridgeGpus(spec));
  if (bridges.empty()) return ports_.executor.Start(std::move(spec), observer);
  const absl::Duration deadline = spec.deadline;
  auto task = std::make_unique<BridgedTask>(key, std::move(bridges), ports_.executor, observer);
  RETURN_IF_ERROR(ports_.executor.Start(std::move(spec), *task));
  tasks_[key].task = std::move(task);
  Begin(key, deadline);
  return absl::OkStatus();
}

void BridgedTaskRunner::Begin(const TaskKey& key, absl::Duration deadline) {
  Running& running = tasks_.at(key);
  running.deadline = ports_.loop.RunAfter(deadline, [this, key, deadline] {
    // The executor ends what is its own.
    tasks_.at(key).task->CancelCopies(absl::DeadlineExceededError(
        absl::StrCat("deadline of ", absl::FormatDuration(deadline),
                     "; missing: copies between the GPU and host memory")));
  });
  // The observer is not called from inside Start.
  ports_.loop.Post([this, key] {
    tasks_.at(key).task->Begin([this, key] {
      ports_.loop.Cancel(tasks_.at(key).deadline);
      // Not from inside the task's own call.
      ports_.loop.Post([this, key] { tasks_.erase(key); });
    });
  });
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceBridge>>> BridgedTaskRunner::BridgeGpus(
    TaskSpec& spec) {
  const WorkerPart& part = spec.part->part();
  std::vector<std::unique_ptr<DeviceBridge>> bridges;
  for (const DeviceRank device : part.spec().devices) {
    GpuDevice* const gpu = ports_.gpus.Find(part.tensors().devices()[device]);
    if (gpu == nullptr) continue;
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceBridge> bridge, Bridge(*gpu, device, spec));
    if (bridge != nullptr) bridges.push_back(std::move(bridge));
  }
  return bridges;
}

absl::StatusOr<std::unique_ptr<DeviceBridge>> BridgedTaskRunner::Bridge(GpuDevice& gpu,
                                                                        DeviceRank device,
                                                                        TaskSpec& spec) {
  const Uses uses = UsesOf(*spec.part, device);
  if (!uses.reads && !uses.writes) return nullptr;
  auto bridge =
      std::make_unique<DeviceBridge>(gpu, DeviceBridge::Options{.key = spec.key,
                                                                .device = device,
                                                                .checksums = spec.checksums,
                                                                .deadline = spec.deadline});
  const auto make_bounce_buffer = [this](ByteCount bytes) { return MakeBounceBuffer(bytes); };
  // The executor says what is missing.
  if (const auto tiles = spec.sources.find(device); uses.reads && tiles != spec.sources.end()) {
    ASSIGN_OR_RETURN(tiles->second, bridge->BounceBufferSources(
                                        tiles->second, spec.part->tiles(Side::kSource, device),
                                        make_bounce_buffer));
    spec.awaited_sources.insert(device);
  }
  if (const auto tiles = spec.destinations.find(device);
      uses.writes && tiles != spec.destinations.end()) {
    ASSIGN_OR_RETURN(tiles->second, bridge->BounceBufferDestinations(
                                        tiles->second, spec.part->tiles(Side::kDestination, device),
                                        make_bounce_buffer));
  }
  return bridge;
}

absl::StatusOr<std::shared_ptr<Arena>> BridgedTaskRunner::MakeBounceBuffer(ByteCount bytes) {
  const int64_t max = options_.bounce_bytes_max.value();
  if (bytes.value() > max - bounce_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("bounce buffers of GPUs in host memory: expected at most ", max,
                     " bytes, found ", bounce_bytes_, " in use and ", bytes.value(), " wanted"));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, ports_.make_arena(bytes));
  bounce_bytes_ += bytes.value();
  Arena* const bounce_buffer = arena.get();
  return std::shared_ptr<Arena>(bounce_buffer,
                                [this, bytes, arena = std::move(arena)](Arena* /*bounce_buffer*/) {
                                  bounce_bytes_ -= bytes.value();
                                });
}

void BridgedTaskRunner::Cancel(const TaskKey& key, absl::Status why) {
  if (const auto found = tasks_.find(key); found != tasks_.end()) {
    found->second.task->CancelCopies(why);
  }
  ports_.executor.Cancel(key, std::move(why));
}

std::optional<int64_t> BridgedTaskRunner::MovedBytes(const TaskKey& key) const {
  const auto found = tasks_.find(key);
  if (found == tasks_.end()) return ports_.executor.MovedBytes(key);
  return found->second.task->moved_bytes();
}

}  // namespace crossmesh
