// A running operation and the communicators of its attempts.

#include "controller/dispatch/running_operation.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

void RunningOperation::GetCommunicator() {
  Attempt& attempt = attempts_.back();
  if (!attempt.communicator_wanted.has_value()) {
    attempt.communicator_wanted = environment_.clock.Monotonic();
  }
  absl::StatusOr<std::shared_ptr<const TaskCommunicator>> communicator =
      FindTaskCommunicator(*attempt.planned, attempt.workers, environment_.epoch);
  if (!communicator.ok()) return TryCommunicatorAgain(communicator.status());
  attempt.communicator = *std::move(communicator);
  if (attempt.communicator == nullptr) return Feed(Planned{Shares()});
  awaits_communicator_ = true;
  const size_t number = attempts_.size();
  environment_.communicators.Want(LeaseOf(number), attempt.communicator->key,
                                  [weak = weak_from_this(), number](const absl::Status& status) {
                                    if (const auto self = weak.lock())
                                      self->OnCommunicator(number, status);
                                  });
}

void RunningOperation::OnCommunicator(size_t attempt, const absl::Status& status) {
  if (finished_ || attempt != attempts_.size()) return;
  awaits_communicator_ = false;
  if (status.ok()) return Feed(Planned{Shares()});
  attempts_.back().communicator = nullptr;
  TryCommunicatorAgain(status);
}

void RunningOperation::OnCommunicatorTooLate() {
  FailPlanning(absl::DeadlineExceededError(
      absl::StrCat("the operation's deadline passed while it waited for communicator ",
                   attempts_.back().communicator->key.ToString())));
}

// A process that ended is replaced, which takes a while, and is heard of only then.
void RunningOperation::TryCommunicatorAgain(const absl::Status& why) {
  Attempt& attempt = attempts_.back();
  attempt.obstacle = why;
  const absl::Duration end = *attempt.communicator_wanted + kProcessReturnTime;
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

std::optional<int32_t> RunningOperation::RankAt(const Attempt& attempt, const std::string& worker) {
  const std::vector<DeviceRank>& devices = attempt.communicator->devices;
  for (const TaskStart::Peer& peer : *attempt.peers) {
    if (peer.worker != worker) continue;
    const auto found = std::ranges::find_first_of(devices, peer.devices);
    if (found != devices.end()) return static_cast<int32_t>(found - devices.begin());
  }
  return std::nullopt;
}

void RunningOperation::TellBroken(size_t attempt, const TaskEnded& ended) {
  const auto& communicator = attempts_[attempt - 1].communicator;
  const std::optional<int32_t> rank =
      Task(ended.worker, static_cast<uint32_t>(attempt)).broken_rank();
  if (communicator == nullptr || !rank.has_value()) return;
  if (*rank < 0 || *rank >= std::ssize(communicator->key.ranks)) return;
  environment_.communicators.Broken(
      LeaseOf(attempt), communicator->key.ranks[*rank],
      absl::UnavailableError(absl::StrCat("worker ", ended.worker, ": ", ended.status.message())));
}

void RunningOperation::ReturnCommunicator(size_t attempt) {
  if (attempt == 0) return;  // there is no plan
  Attempt& over = attempts_[attempt - 1];
  awaits_communicator_ = false;
  if (over.communicator == nullptr) return;
  for (const auto& [worker, task] : over.tasks) {
    const std::optional<int32_t> rank = RankAt(over, worker);
    if (task->ended() || !rank.has_value()) continue;
    environment_.communicators.Broken(
        LeaseOf(attempt), over.communicator->key.ranks[*rank],
        absl::UnavailableError(absl::StrCat("worker ", worker, ": a task of operation ",
                                            request_.id, " may still use it")));
  }
  over.communicator = nullptr;
  environment_.communicators.Release(LeaseOf(attempt));
}

}  // namespace crossmesh
