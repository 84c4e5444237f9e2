// A running operation and the communicators of its attempts.

#include "controller/dispatch/running_operation.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

void RunningOperation::GetCommunicators() {
  Attempt& attempt = attempts_.back();
  if (!attempt.communicators_wanted.has_value()) {
    attempt.communicators_wanted = environment_.clock.Monotonic();
  }
  absl::StatusOr<TaskCommunicators> communicators =
      FindTaskCommunicators(*attempt.planned, attempt.workers, environment_.epoch);
  if (!communicators.ok()) return TryCommunicatorsAgain(communicators.status());
  attempt.communicators = *std::move(communicators);
  if (attempt.communicators.empty()) return Feed(Planned{Shares()});
  awaits_communicators_ = true;
  const size_t number = attempts_.size();
  std::vector<CommunicatorKey> keys;
  for (const TaskCommunicator& wanted : attempt.communicators) keys.push_back(wanted.key);
  environment_.communicators.Want(LeaseOf(number), std::move(keys),
                                  [weak = weak_from_this(), number](const absl::Status& status) {
                                    if (const auto self = weak.lock())
                                      self->OnCommunicators(number, status);
                                  });
}

void RunningOperation::OnCommunicators(size_t attempt, const absl::Status& status) {
  if (finished_ || attempt != attempts_.size()) return;
  awaits_communicators_ = false;
  if (status.ok()) return Feed(Planned{Shares()});
  attempts_.back().communicators.clear();
  TryCommunicatorsAgain(status);
}

void RunningOperation::OnCommunicatorsTooLate() {
  const TaskCommunicators& wanted = attempts_.back().communicators;
  FailPlanning(absl::DeadlineExceededError(
      absl::StrCat("the operation's deadline passed while it waited for communicator ",
                   wanted.front().key.ToString(),
                   wanted.size() > 1 ? absl::StrCat(" and ", wanted.size() - 1, " more") : "")));
}

// A process that ended is replaced, which takes a while, and is heard of only then.
void RunningOperation::TryCommunicatorsAgain(const absl::Status& why) {
  Attempt& attempt = attempts_.back();
  attempt.obstacle = why;
  const absl::Duration end = *attempt.communicators_wanted + kProcessReturnTime;
  if (!absl::IsUnavailable(why) || environment_.clock.Monotonic() >= end) {
    return FailPlanning(why);
  }
  environment_.queue.PostAfter(kProcessPause, [weak = weak_from_this()] {
    const std::shared_ptr<RunningOperation> self = weak.lock();
    if (self != nullptr && !self->finished_) self->AssignWorkers();
  });
}

std::string RunningOperation::LeaseOf(size_t attempt) const {
  return absl::StrCat(request_.id, "/", attempt);
}

std::vector<RankName> RunningOperation::RanksAt(const Attempt& attempt, const std::string& worker) {
  std::vector<RankName> ranks;
  for (const TaskStart::Peer& peer : *attempt.peers) {
    if (peer.worker != worker) continue;
    for (const auto& [key, devices] : attempt.communicators) {
      const auto found = std::ranges::find_first_of(devices, peer.devices);
      if (found != devices.end()) ranks.push_back(key.ranks[found - devices.begin()]);
    }
  }
  return ranks;
}

void RunningOperation::TellBroken(size_t attempt, const TaskEnded& ended) {
  const std::vector<DeviceRank>& broken =
      Task(ended.worker, static_cast<uint32_t>(attempt)).broken_devices();
  const absl::Status why =
      absl::UnavailableError(absl::StrCat("worker ", ended.worker, ": ", ended.status.message()));
  for (const auto& [key, devices] : attempts_[attempt - 1].communicators) {
    const auto found = std::ranges::find_first_of(devices, broken);
    if (found == devices.end()) continue;
    environment_.communicators.Broken(LeaseOf(attempt), key.ranks[found - devices.begin()], why);
  }
}

void RunningOperation::ReturnCommunicators(size_t attempt) {
  if (attempt == 0) return;  // there is no plan
  Attempt& over = attempts_[attempt - 1];
  awaits_communicators_ = false;
  if (over.communicators.empty()) return;
  for (const auto& [worker, task] : over.tasks) {
    if (task->ended()) continue;
    const absl::Status why = absl::UnavailableError(absl::StrCat(
        "worker ", worker, ": a task of operation ", request_.id, " may still use it"));
    for (const RankName& rank : RanksAt(over, worker)) {
      environment_.communicators.Broken(LeaseOf(attempt), rank, why);
    }
  }
  over.communicators.clear();
  environment_.communicators.Release(LeaseOf(attempt));
}

}  // namespace crossmesh
