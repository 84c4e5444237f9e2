#include "controller/dispatch/attempt_communicators.h"

#include "common/wire/communicator_codec.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

void AttemptCommunicators::Get(const PlannedReshard& planned, std::span<const WorkerRecord> workers,
                               Outcome outcome) {
  outcome_ = std::move(outcome);
  if (!wanted_.has_value()) wanted_ = options_.clock.Monotonic();
  absl::StatusOr<TaskCommunicators> found = FindTaskCommunicators(planned, workers, options_.epoch);
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
