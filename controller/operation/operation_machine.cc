#include "controller/operation/operation_machine.h"

#include "controller/operation/worker_error.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Errors that another plan may mend: another worker was not there.
bool IsRetryable(const absl::Status& status) { return absl::IsUnavailable(status); }

}  // namespace

OperationMachine::OperationMachine(LeftOperation left)
    : state_(left.attempt == 1 ? OperationState::kPreparing : OperationState::kRunning),
      attempt_(left.attempt),
      planned_(true),
      replicas_(left.replicas.size()),
      earlier_tasks_(std::move(left.earlier_tasks)),
      error_(std::move(left.error)) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    replicas_[i].state = left.replicas[i].state;
    replicas_[i].error = left.replicas[i].error;
  }
  AddTasks(left.shares);
}

std::vector<std::string> OperationMachine::Unheard() const {
  std::vector<std::string> workers;
  for (const Task& task : tasks_) {
    if (task.state == TaskState::kStarting) workers.push_back(task.share.worker);
  }
  return workers;
}

std::vector<OperationAction> OperationMachine::Handle(const OperationEvent& event) {
  if (IsTerminal(state_)) return {};
  actions_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  Settle();
  return std::move(actions_);
}

void OperationMachine::On(const Planned& event) {
  if (planned_ || !ending_.ok()) return;
  planned_ = true;
  AddTasks(event.shares);
  Do(CommitIntent{});
}

void OperationMachine::AddTasks(const std::vector<WorkerShare>& shares) {
  for (const WorkerShare& share : shares) {
    for (const auto& [device, replica] : share.replica_of_device) {
      replicas_[replica].devices.insert({share.worker, device});
    }
    tasks_.push_back(Task{.share = share});
  }
}

void OperationMachine::On(const IntentCommitted&) {
  if (planned_ && !started_ && ending_.ok()) StartTasks();
}

void OperationMachine::On(const IntentFailed& event) {
  if (!started_) BeginEnding(event.status);
}

void OperationMachine::StartTasks() {
  started_ = true;
  for (Task& task : tasks_) Do(StartTask{task.share.worker, attempt_});
  // Workers that went while the plan was made.
  for (const std::string& worker : std::set<std::string>(lost_workers_)) {
    if (FindTask(worker) != nullptr) {
      LoseWorker(worker, absl::UnavailableError("lost before the start"));
    }
  }
  // A replica to which nothing comes is whole before any task has reported.
  for (int32_t i = 0; i < static_cast<int32_t>(replicas_.size()); ++i) CommitWhereWhole(i);
}

void OperationMachine::On(const TaskAccepted& event) {
  Task* task = FindTask(event.worker);
  if (task == nullptr || task->state != TaskState::kStarting) return;
  task->state = TaskState::kAccepted;
  task->accepted = true;
  if (Unheard().empty() && state_ == OperationState::kPreparing) {
    state_ = OperationState::kRunning;
    Do(PublishChange{});
  }
}

void OperationMachine::On(const DeviceDone& event) {
  Task* task = FindTask(event.worker);
  if (task == nullptr || task->ended()) return;
  const auto found = task->share.replica_of_device.find(event.device);
  if (found == task->share.replica_of_device.end()) return;
  if (!event.status.ok()) {
    DeviceFailed(event.worker, event.device, event.status);
    return;
  }
  replicas_[found->second].done.insert({event.worker, event.device});
  CommitWhereWhole(found->second);
}

void OperationMachine::On(const TaskEnded& event) {
  Task* task = FindTask(event.worker);
  if (task == nullptr || task->ended()) return;
  const bool refused = task->state == TaskState::kStarting;
  task->state = TaskState::kEnded;
  for (const auto& [device, index] : task->share.replica_of_device) {
    const Replica& replica = replicas_[index];
    if (replica.done.contains({event.worker, device})) continue;
    if (!event.status.ok()) {
      DeviceFailed(event.worker, device, event.status);
    } else if (!replica.to_retry) {
      DeviceFailed(event.worker, device, absl::InternalError("no word of a device at the end"));
    }
    // Planning again leaves out a worker that refused, so its replicas cannot be served.
    if (refused) FailReplica(index, AboutWorker(event.worker, event.status));
  }
  if (refused && ending_.ok()) {
    // Others would wait for its bytes; what they need is planned again without it.
    Blame(AboutWorker(event.worker, event.status));
    // Its replicas have failed, so it is planned for as a source alone.
    if (!event.as_receiver) {
      avoided_workers_.insert(event.worker);
      absent_.try_emplace(event.worker, ReasonOf(event.worker, event.status));
    }
    for (const Task& other : tasks_) {
      if (other.ended()) continue;
      Do(TellPeerLost{other.share.worker, attempt_, event.worker,
                      std::string(ReasonOf(event.worker, event.status))});
    }
  }
  for (const std::string& peer : event.lost_peers) accusations_.Add(event.worker, peer);
}

void OperationMachine::On(const DevicesResolved& event) {
  Task* task = FindTask(event.worker);
  if (task == nullptr || task->state == TaskState::kLost) return;
  for (const DeviceRank device : event.devices) {
    if (task->unresolved.erase(device) == 0) continue;  // said again on a new call
    task->resolved.insert(device);
    const int32_t index = task->share.replica_of_device.at(device);
    Replica& replica = replicas_[index];
    // It is abandoned, or another device has failed to commit.
    if (!replica.committing) continue;
    if (!event.status.ok()) {
      Blame(AboutWorker(event.worker, event.status));
      FailReplica(index, AboutWorker(event.worker, event.status));
      continue;
    }
    replica.committed.insert({event.worker, device});
    if (replica.committed.size() == replica.devices.size()) {
      replica.state = ReplicaState::kCommitted;
      replica.committing = false;
      replica.error = absl::OkStatus();  // of the first attempt
      Do(PublishChange{});
    }
  }
}

void OperationMachine::On(const WorkerLost& event) { LoseWorker(event.worker, event.status); }

void OperationMachine::On(const WordAwaited& event) {
  if (event.attempt == attempt_) patience_ = Patience::kHasNone;
}

void OperationMachine::On(const CancelRequested& event) {
  BeginEnding(absl::CancelledError(absl::StrCat("cancelled: ", event.reason)));
}

void OperationMachine::On(const DeadlinePassed&) {
  if (ending_.ok()) {
    BeginEnding(absl::DeadlineExceededError("the operation's deadline passed"));
    return;
  }
  for (const Task& task : std::vector<Task>(tasks_)) {
    if (task.state != TaskState::kLost && (!task.ended() || !task.unresolved.empty())) {
      LoseWorker(task.share.worker, absl::UnavailableError("did not answer in time"));
    }
  }
}

OperationMachine::Task* OperationMachine::FindTask(absl::string_view worker) {
  const auto found =
      std::ranges::find_if(tasks_, [&](const Task& t) { return t.share.worker == worker; });
  return found == tasks_.end() ? nullptr : &*found;
}

void OperationMachine::DeviceFailed(const std::string& worker, DeviceRank device,
                                    const absl::Status& status) {
  const int32_t index = FindTask(worker)->share.replica_of_device.at(device);
  Blame(AboutWorker(worker, status));
  Replica& replica = replicas_[index];
  if (replica.state != ReplicaState::kReceiving || replica.committing) return;
  if (IsRetryable(status) && ending_.ok() && attempt_ == 1) {
    replica.to_retry = true;
    if (replica.error.ok()) replica.error = AboutWorker(worker, status);
    return;
  }
  FailReplica(index, AboutWorker(worker, status));
}

void OperationMachine::FailReplica(int32_t index, const absl::Status& status) {
  Replica& replica = replicas_[index];
  if (replica.state != ReplicaState::kReceiving) return;
  replica.state = ReplicaState::kFailed;
  replica.to_retry = false;
  replica.committing = false;
  replica.error = status;
  Do(PublishChange{});
}

void OperationMachine::CommitWhereWhole(int32_t index) {
  Replica& replica = replicas_[index];
  if (replica.state != ReplicaState::kReceiving || replica.committing) return;
  if (replica.done.size() != replica.devices.size()) return;
  if (replica.devices.empty()) {  // nothing of it lies anywhere
    replica.state = ReplicaState::kCommitted;
    return;
  }
  replica.committing = true;
  replica.to_retry = false;  // what did not come in time has come
  state_ = OperationState::kVerifying;
  absl::btree_map<std::string, std::vector<DeviceRank>> devices_of_worker;
  for (const auto& [worker, device] : replica.devices) devices_of_worker[worker].push_back(device);
  for (auto& [worker, devices] : devices_of_worker) {
    FindTask(worker)->unresolved.insert(devices.begin(), devices.end());
    Do(ResolveDevices{worker, attempt_, std::move(devices), true});
  }
  Do(PublishChange{});
}

void OperationMachine::LoseWorker(const std::string& worker, const absl::Status& status) {
  lost_workers_.insert(worker);
  accusations_.Forget(worker);
  Task* task = FindTask(worker);
  if (task == nullptr || task->state == TaskState::kLost) return;
  if (!started_) return;  // StartTasks looks again
  absent_.try_emplace(worker, ReasonOf(worker, status));
  const bool was_needed = !task->ended();
  task->state = TaskState::kLost;
  task->unresolved.clear();
  Blame(AboutWorker(worker, status));
  for (const auto& [device, replica] : task->share.replica_of_device) {
    if (!replicas_[replica].committed.contains({worker, device})) {
      FailReplica(replica, AboutWorker(worker, status));
    }
  }
  if (!was_needed) return;
  for (const Task& other : tasks_) {
    if (other.ended()) continue;
    Do(TellPeerLost{other.share.worker, attempt_, worker, std::string(ReasonOf(worker, status))});
  }
}

// Once all are heard: loses workers until every accusation is explained.
void OperationMachine::Judge() {
  if (!accusations_.AllHeard(Witnesses())) return;
  if (attempt_ == 1 && ending_.ok()) {
    // What did not come over a link is planned again, around it if there is a way.
    accusations_.ForgiveEndsOfLinks(Witnesses());
    if (patience_ != Patience::kHasNone && accusations_.MayForgiveMore(Witnesses())) {
      if (patience_ == Patience::kHas) Do(AwaitWord{attempt_});
      patience_ = Patience::kWaits;
      return;
    }
  }
  while (const auto verdict = accusations_.Judge(Witnesses())) {
    LoseWorker(verdict->guilty,
               absl::UnavailableError(absl::StrCat("blamed by worker ", verdict->accuser,
                                                   ": gone or without progress")));
  }
}

std::vector<Accusations::Witness> OperationMachine::Witnesses() const {
  std::vector<Accusations::Witness> witnesses;
  for (const Task& task : tasks_) {
    const std::string& worker = task.share.worker;
    const auto lacks = [&](const auto& entry) {
      return !replicas_[entry.second].done.contains({worker, entry.first});
    };
    witnesses.push_back({.worker = worker,
                         .ended = task.ended(),
                         .lacks_bytes = std::ranges::any_of(task.share.replica_of_device, lacks)});
  }
  return witnesses;
}

void OperationMachine::BeginEnding(const absl::Status& why) {
  if (!ending_.ok()) return;
  ending_ = why;
  Blame(why);
  for (const Task& task : tasks_) {
    if (started_ && !task.ended()) {
      Do(CancelTask{task.share.worker, attempt_, std::string(why.message())});
    }
  }
}

void OperationMachine::Settle() {
  if (!started_ && ending_.ok()) return;
  Judge();
  // While a task runs it may write to its destinations, and while a lease is open the worker keeps
  // them for it: only after both may they be planned for again, or the operation be over.
  const bool all_ended = !started_ || std::ranges::all_of(tasks_, &Task::ended);
  if (!all_ended) return AskForHope();
  Abandon();
  if (!EverythingResolved()) return;
  if (PlanRemaining()) return;
  Finish();
}

// Ends the leases of what will not be committed in this attempt.
void OperationMachine::Abandon() {
  for (Task& task : tasks_) {
    if (!task.accepted || task.state == TaskState::kLost) continue;
    std::vector<DeviceRank> devices;
    for (const auto& [device, index] : task.share.replica_of_device) {
      const Replica& replica = replicas_[index];
      if (replica.committing || replica.state == ReplicaState::kCommitted) continue;
      if (task.unresolved.contains(device) || task.resolved.contains(device)) continue;
      devices.push_back(device);
    }
    if (devices.empty()) continue;
    task.unresolved.insert(devices.begin(), devices.end());
    Do(ResolveDevices{task.share.worker, attempt_, std::move(devices), false});
  }
}

bool OperationMachine::EverythingResolved() const {
  return std::ranges::all_of(tasks_, [](const Task& t) { return t.unresolved.empty(); });
}

void OperationMachine::Finish() {
  int32_t committed = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(replicas_.size()); ++i) {
    if (replicas_[i].state == ReplicaState::kReceiving) {
      FailReplica(i, !ending_.ok()              ? ending_
                     : !replicas_[i].error.ok() ? replicas_[i].error
                                                : error_);
    }
    if (replicas_[i].state == ReplicaState::kCommitted) ++committed;
  }
  // Only now: an acknowledged worker releases its sources, from which later attempts read as well.
  for (const auto& [worker, attempt] : earlier_tasks_) {
    if (!lost_workers_.contains(worker)) Do(AcknowledgeTask{worker, attempt});
  }
  for (const Task& task : tasks_) {
    if (task.accepted && task.state != TaskState::kLost) {
      Do(AcknowledgeTask{task.share.worker, attempt_});
    }
  }
  // Without a plan there are no replicas, and the error alone decides.
  if (committed == static_cast<int32_t>(replicas_.size()) && (error_.ok() || committed > 0)) {
    state_ = OperationState::kCommitted;
  } else if (committed > 0) {
    state_ = OperationState::kPartial;
  } else {
    state_ = absl::IsCancelled(ending_) ? OperationState::kCancelled : OperationState::kFailed;
  }
  Do(FinishOperation{});
}

void OperationMachine::Blame(const absl::Status& status) {
  if (error_.ok()) error_ = status;
}

}  // namespace crossmesh
