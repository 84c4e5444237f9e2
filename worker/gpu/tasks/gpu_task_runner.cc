#include "worker/gpu/tasks/gpu_task_runner.h"

#include "common/base/status_macros.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/time_codec.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

BoundTiles TilesOf(const absl::flat_hash_map<DeviceRank, BoundTiles>& tiles, DeviceRank device) {
  const auto found = tiles.find(device);
  return found == tiles.end() ? BoundTiles() : found->second;
}

// What is moved, and be it on one GPU, is moved over a communicator.
absl::StatusOr<TaskSpec::Communicator> CommunicatorOf(const TaskSpec& spec,
                                                      const WorkerPart& part) {
  const DeviceRank device = part.spec().devices.front();
  for (const TaskSpec::Communicator& communicator : spec.communicators) {
    const std::vector<DeviceRank>& devices = communicator.devices;
    if (std::ranges::find(devices, device) != devices.end()) return communicator;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "device ", ToString(part.tensors().devices()[device]), ": expected a rank in one of ",
      spec.communicators.size(), " communicators, found none"));
}

}  // namespace

absl::Status GpuTaskRunner::Start(TaskSpec spec, TaskObserver& observer) {
  const TaskKey key = spec.key;
  if (Find(key) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("operation ", key.operation, " of epoch ",
                                                 key.epoch, ", plan ", key.plan, ", instance ",
                                                 key.instance, " runs here"));
  }
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<DeviceTask>> devices, MakeDeviceTasks(spec));
  tasks_[key] = std::make_unique<GpuTask>(std::move(spec), std::move(devices), observer);
  // The observer is not called from inside.
  loop_.Post([this, key] {
    tasks_.at(key)->Begin([this, key] {
      // Not from inside the task's own call.
      loop_.Post([this, key] { tasks_.erase(key); });
    });
  });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceTask>>> GpuTaskRunner::MakeDeviceTasks(
    const TaskSpec& spec) {
  ASSIGN_OR_RETURN(const auto parts, parts_.Of(spec.part->part()));
  std::vector<std::unique_ptr<DeviceTask>> devices;
  for (const std::shared_ptr<const WorkerPart>& part : *parts) {
    if (part->spec().relays.empty() && part->spec().copies.empty()) continue;
    const DeviceRank device = part->spec().devices.front();
    const DeviceId& id = part->tensors().devices()[device];
    GpuDevice* const gpu = gpus_.Find(id);
    if (gpu == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", ToString(id), ": expected a GPU of this worker"));
    }
    ASSIGN_OR_RETURN(const TaskSpec::Communicator communicator, CommunicatorOf(spec, *part));
    v1::GpuRequest::RunTask task;
    *task.mutable_key() = ToProto(spec.key);
    task.set_checksums(spec.checksums);
    *task.mutable_communicator() = ToProto(communicator.key);
    task.mutable_devices()->Assign(communicator.devices.begin(), communicator.devices.end());
    *task.mutable_deadline() = ToProto(spec.deadline);
    *task.mutable_stall_limit() = ToProto(spec.stall_limit);
    devices.push_back(std::make_unique<DeviceTask>(
        *gpu, DeviceTask::Options{.part = part,
                                  .key = spec.key,
                                  .task = std::move(task),
                                  .sources = TilesOf(spec.sources, device),
                                  .destinations = TilesOf(spec.destinations, device)}));
  }
  return devices;
}

void GpuTaskRunner::Cancel(const TaskKey& key, absl::Status why) {
  if (GpuTask* const task = Find(key)) task->Cancel(why);
}

void GpuTaskRunner::PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) {
  if (GpuTask* const task = Find(key)) task->LosePeer(std::string(worker), why);
}

std::optional<int64_t> GpuTaskRunner::MovedBytes(const TaskKey& key) const {
  const GpuTask* const task = Find(key);
  if (task == nullptr) return std::nullopt;
  return task->moved_bytes();
}

GpuTask* GpuTaskRunner::Find(const TaskKey& key) const {
  const auto found = tasks_.find(key);
  return found == tasks_.end() ? nullptr : found->second.get();
}

}  // namespace crossmesh
