#include "controller/dispatch/attempt_communicators.h"

#include "common/wire/communicator_codec.h"

#include <algorithm>
#include <map>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Purposes.
constexpr absl::string_view kRelays = "relay";
constexpr absl::string_view kBroadcasts = "broadcast";
constexpr absl::string_view kM2n = "m2n";

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

// Those for a plan whose devices belong to `workers`: one for each broadcast group, and one for all
// others that move bytes, or that do so over GPUs where the plan has host memory as well. Ranks are
// in the order of the devices' names, so that plans of the same GPUs share communicators whatever
// they move. Empty when one of them is no GPU at its worker: then all bytes go through host memory
// everywhere; FailedPrecondition where the plan is M2N's, whose one communicator is of all devices,
// in the plan's order. Unavailable when no process drives one of the GPUs now.
absl::StatusOr<TaskCommunicators> FindCommunicators(const PlannedReshard& planned,
                                                    std::span<const WorkerRecord> workers,
                                                    uint64_t epoch) {
  const std::map<DeviceId, const GpuRecord*> gpus = GpusOf(workers);
  const std::vector<DeviceRank>& over_gpus = planned.gpu_devices();
  std::vector<Member> members;
  for (const DeviceRank rank : planned.moving_devices()) {
    const DeviceId& device = planned.tensors().devices()[rank];
    const auto gpu = gpus.find(device);
    if (gpu == gpus.end()) continue;
    if (!gpu->second->has_process()) {
      return absl::UnavailableError(absl::StrCat(
          "device ", ToString(device), ": no process drives ", gpu->second->process.gpu, " now"));
    }
    if (!std::ranges::binary_search(over_gpus, rank)) continue;
    members.push_back({.device = device, .rank = rank, .process = gpu->second->process});
  }
  const bool is_m2n = planned.plan().spec().m2n;
  if (members.size() < over_gpus.size()) {
    if (!is_m2n) return TaskCommunicators();
    return absl::FailedPreconditionError(absl::StrCat(
        "strategy m2n: expected GPUs alone, found that ", over_gpus.size() - members.size(), " of ",
        over_gpus.size(), " devices are in host memory at their workers"));
  }
  // M2N numbers devices as the plan does.
  if (!is_m2n) std::ranges::sort(members, {}, &Member::device);
  const std::vector<int32_t> groups = GroupsOf(planned.plan());
  std::map<int32_t, TaskCommunicator> by_group;
  for (const Member& member : members) {
    const int32_t group = groups[member.rank];
    TaskCommunicator& communicator = by_group[group];
    communicator.key.purpose = std::string(is_m2n              ? kM2n
                                           : group == kNoGroup ? kRelays
                                                               : kBroadcasts);
    communicator.key.epoch = epoch;
    communicator.key.ranks.push_back(member.process);
    communicator.devices.push_back(member.rank);
  }
  TaskCommunicators communicators;
  for (auto& [group, communicator] : by_group) communicators.push_back(std::move(communicator));
  return communicators;
}

}  // namespace

void AttemptCommunicators::Get(const PlannedReshard& planned, std::span<const WorkerRecord> workers,
                               Outcome outcome) {
  outcome_ = std::move(outcome);
  if (!wanted_.has_value()) wanted_ = options_.clock.Monotonic();
  absl::StatusOr<TaskCommunicators> found = FindCommunicators(planned, workers, options_.epoch);
  if (!found.ok()) return TryAgain(found.status());
  communicators_ = *std::move(found);
  if (communicators_.empty()) return outcome_.done(absl::OkStatus());
  waiting_ = true;
  std::vector<CommunicatorKey> keys;
  for (const TaskCommunicator& wanted : communicators_) keys.push_back(wanted.key);
  options_.leases.Want(LeaseName(), std::move(keys),
                       [weak = weak_from_this()](const absl::Status& status) {
                         if (const auto self = weak.lock()) self->OnLeased(status);
                       });
}

void AttemptCommunicators::OnLeased(const absl::Status& status) {
  if (over_) return;
  waiting_ = false;
  if (status.ok()) return outcome_.done(status);
  communicators_.clear();
  TryAgain(status);
}

absl::Status AttemptCommunicators::TooLate() const {
  return absl::DeadlineExceededError(absl::StrCat(
      "the operation's deadline passed while it waited for communicator ",
      communicators_.front().key.ToString(),
      communicators_.size() > 1 ? absl::StrCat(" and ", communicators_.size() - 1, " more") : ""));
}

// A process that has ended is replaced, which takes a while, and the registry hears of the new one
// only with its worker's next heartbeat.
void AttemptCommunicators::TryAgain(const absl::Status& why) {
  obstacle_ = why;
  if (!absl::IsUnavailable(why) || options_.clock.Monotonic() >= *wanted_ + kProcessReturnTime) {
    return outcome_.done(why);
  }
  options_.queue.PostAfter(kProcessPause, [weak = weak_from_this()] {
    const std::shared_ptr<AttemptCommunicators> self = weak.lock();
    if (self != nullptr && !self->over_) self->outcome_.again();
  });
}

std::string AttemptCommunicators::LeaseName() const {
  return absl::StrCat(options_.operation, "/", options_.attempt);
}

void AttemptCommunicators::WriteTo(v1::ExecuteRequest::Start& start) const {
  for (const TaskCommunicator& communicator : communicators_) {
    v1::ExecuteRequest::Communicator& out = *start.add_communicators();
    *out.mutable_key() = ToProto(communicator.key);
    out.mutable_devices()->Assign(communicator.devices.begin(), communicator.devices.end());
  }
}

// One rank of a communicator is enough to break it for all.
void AttemptCommunicators::OnBroken(std::span<const DeviceRank> broken, const absl::Status& why) {
  for (const auto& [key, devices] : communicators_) {
    const auto found = std::ranges::find_first_of(devices, broken);
    if (found == devices.end()) continue;
    options_.leases.Broken(LeaseName(), key.ranks[found - devices.begin()], why);
  }
}

void AttemptCommunicators::Return(const std::vector<BusyTask>& busy) {
  over_ = true;
  waiting_ = false;
  if (communicators_.empty()) return;
  for (const BusyTask& task : busy) {
    OnBroken(task.devices,
             absl::UnavailableError(absl::StrCat("worker ", task.worker, ": a task of operation ",
                                                 options_.operation, " may still use it")));
  }
  communicators_.clear();
  options_.leases.Release(LeaseName());
}

}  // namespace crossmesh
