#include "controller/dispatch/task_communicator.h"

#include <algorithm>
#include <map>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Purposes.
constexpr absl::string_view kRelays = "relay";
constexpr absl::string_view kBroadcasts = "broadcast";

constexpr int32_t kNoGroup = -1;

struct Member {
  DeviceId device;
  DeviceRank rank = 0;  // in the plan
  RankName process;
};

std::map<DeviceId, const GpuRecord*> GpusOf(std::span<const WorkerRecord> workers) {
  std::map<DeviceId, const GpuRecord*> gpus;
  for (const WorkerRecord& worker : workers) {
    for (const GpuRecord& gpu : worker.gpus) gpus[gpu.device] = &gpu;
  }
  return gpus;
}

// By device: its broadcast group, if it is in one.
std::vector<int32_t> GroupsOf(const Plan& plan) {
  std::vector<int32_t> groups(plan.tensors().devices().size(), kNoGroup);
  const IdSetList& all = plan.spec().broadcast_groups;
  for (int32_t i = 0; i < all.size(); ++i) {
    for (const DeviceRank device : all[i]) groups[device] = i;
  }
  return groups;
}

}  // namespace

absl::StatusOr<TaskCommunicators> FindTaskCommunicators(const PlannedReshard& planned,
                                                        std::span<const WorkerRecord> workers,
                                                        uint64_t epoch) {
  const std::map<DeviceId, const GpuRecord*> gpus = GpusOf(workers);
  std::vector<Member> members;
  for (const DeviceRank rank : planned.moving_devices()) {
    const DeviceId& device = planned.tensors().devices()[rank];
    const auto gpu = gpus.find(device);
    if (gpu == gpus.end()) continue;
    if (!gpu->second->has_process()) {
      return absl::UnavailableError(absl::StrCat(
          "device ", ToString(device), ": no process drives ", gpu->second->process.gpu, " now"));
    }
    members.push_back({.device = device, .rank = rank, .process = gpu->second->process});
  }
  if (members.size() < planned.moving_devices().size()) return TaskCommunicators();
  std::ranges::sort(members, {}, &Member::device);
  const std::vector<int32_t> groups = GroupsOf(planned.plan());
  std::map<int32_t, TaskCommunicator> by_group;
  for (const Member& member : members) {
    const int32_t group = groups[member.rank];
    TaskCommunicator& communicator = by_group[group];
    communicator.key.purpose = std::string(group == kNoGroup ? kRelays : kBroadcasts);
    communicator.key.epoch = epoch;
    communicator.key.ranks.push_back(member.process);
    communicator.devices.push_back(member.rank);
  }
  TaskCommunicators communicators;
  for (auto& [group, communicator] : by_group) communicators.push_back(std::move(communicator));
  return communicators;
}

}  // namespace crossmesh
