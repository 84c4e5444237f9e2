#include "controller/dispatch/task_communicator.h"

#include <algorithm>
#include <map>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kPurpose = "relay";

struct Member {
  DeviceId device;
  DeviceRank rank = 0;  // in the plan
  const GpuRecord* gpu = nullptr;
};

std::map<DeviceId, const GpuRecord*> GpusOf(std::span<const WorkerRecord> workers) {
  std::map<DeviceId, const GpuRecord*> gpus;
  for (const WorkerRecord& worker : workers) {
    for (const GpuRecord& gpu : worker.gpus) gpus[gpu.device] = &gpu;
  }
  return gpus;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TaskCommunicator>> FindTaskCommunicator(
    const PlannedReshard& planned, std::span<const WorkerRecord> workers, uint64_t epoch) {
  const std::map<DeviceId, const GpuRecord*> gpus = GpusOf(workers);
  std::vector<Member> members;
  for (const DeviceRank rank : planned.moving_devices()) {
    const DeviceId& device = planned.tensors().devices()[rank];
    const auto gpu = gpus.find(device);
    if (gpu == gpus.end()) continue;
    members.push_back({.device = device, .rank = rank, .gpu = gpu->second});
  }
  std::ranges::sort(members, {}, &Member::device);
  auto communicator = std::make_shared<TaskCommunicator>();
  communicator->key = {.ranks = {}, .purpose = std::string(kPurpose), .epoch = epoch};
  for (const Member& member : members) {
    if (!member.gpu->has_process()) {
      return absl::UnavailableError(absl::StrCat("device ", ToString(member.device),
                                                 ": no process drives ", member.gpu->process.gpu,
                                                 " now"));
    }
    communicator->key.ranks.push_back(member.gpu->process);
    communicator->devices.push_back(member.rank);
  }
  const bool only_gpus = members.size() == planned.moving_devices().size();
  return only_gpus && !members.empty() ? communicator : nullptr;
}

}  // namespace crossmesh
