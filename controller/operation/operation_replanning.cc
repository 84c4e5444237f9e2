// Workers that are missing: whether the rest of an operation can do without them.

#include "controller/operation/operation_machine.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

void OperationMachine::On(const PlanFailed& event) {
  if (planned_) return;
  const absl::Status why = WithAbsent(event.status);
  Blame(why);
  for (int32_t i = 0; i < static_cast<int32_t>(replicas_.size()); ++i) FailReplica(i, why);
  planned_ = started_ = true;  // with no task at all
}

void OperationMachine::On(const Hopeless& event) {
  if (attempt_ != 1 || !started_ || !ending_.ok()) return;
  const absl::Status why = WithAbsent(event.status);
  for (const int32_t index : event.replicas) {
    // It may be whole by now: bytes that were on their way have come.
    if (replicas_[index].to_retry) FailReplica(index, why);
  }
  const bool over = std::ranges::none_of(
      replicas_, [](const Replica& r) { return r.state == ReplicaState::kReceiving; });
  if (over) BeginEnding(why);
}

bool OperationMachine::PlanRemaining() {
  std::set<int32_t> remaining = ToRetry();
  if (remaining.empty() || attempt_ != 1 || !ending_.ok()) return false;
  for (const Task& task : tasks_) {
    if (task.accepted && task.state != TaskState::kLost) {
      earlier_tasks_.emplace_back(task.share.worker, attempt_);
    }
  }
  tasks_.clear();
  accusations_.Clear();
  attempt_ = 2;
  planned_ = started_ = false;
  for (Replica& replica : replicas_) {
    if (replica.state != ReplicaState::kReceiving) continue;
    replica.devices.clear();
    replica.done.clear();
    replica.to_retry = false;
  }
  state_ = OperationState::kRunning;
  Do(PlanAgain{attempt_, std::move(remaining), Without()});
  Do(PublishChange{});
  return true;
}

void OperationMachine::AskForHope() {
  if (attempt_ != 1 || !started_ || !ending_.ok()) return;
  CheckHope check{.replicas = ToRetry(), .without = Without()};
  if (check.replicas.empty() || check.without.empty()) return;
  if (check.replicas == asked_.replicas && check.without == asked_.without) return;
  asked_ = check;
  Do(std::move(check));
}

std::set<int32_t> OperationMachine::ToRetry() const {
  std::set<int32_t> replicas;
  for (int32_t i = 0; i < static_cast<int32_t>(replicas_.size()); ++i) {
    const Replica& replica = replicas_[i];
    if (replica.state == ReplicaState::kReceiving && replica.to_retry) replicas.insert(i);
  }
  return replicas;
}

std::set<std::string> OperationMachine::Without() const {
  std::set<std::string> workers = lost_workers_;
  workers.insert(avoided_workers_.begin(), avoided_workers_.end());
  return workers;
}

absl::Status OperationMachine::WithAbsent(const absl::Status& status) const {
  if (absent_.empty()) return status;
  const auto text = [](std::string* out, const auto& absent) {
    absl::StrAppend(out, "worker ", absent.first, ": ", absent.second);
  };
  return absl::Status(status.code(), absl::StrCat(status.message(), "; planned without ",
                                                  absl::StrJoin(absent_, ", without ", text)));
}

}  // namespace crossmesh
