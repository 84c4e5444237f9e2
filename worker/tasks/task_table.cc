#include "worker/tasks/task_table.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/executor/laid_out_part.h"
#include "worker/tasks/admitted_part.h"
#include "worker/tasks/task_end_metrics.h"
#include "worker/tasks/task_leases.h"
#include "worker/tasks/worker_task.h"
#include "worker/wire/task_report_codec.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kSweepInterval = absl::Seconds(1);

}  // namespace

TaskTable::TaskTable(Options options, Ports ports, EpochFence fence)
    : options_(std::move(options)),
      ports_(ports),
      devices_(options_.devices.begin(), options_.devices.end()),
      fence_(std::move(fence)),
      parts_(options_.parts),
      pending_(ports.control) {}

TaskTable::~TaskTable() = default;

absl::Status TaskTable::Draining() const {
  return absl::FailedPreconditionError(absl::StrCat(
      "worker ", options_.worker, ": expected one that takes tasks, found it draining"));
}

absl::Status TaskTable::Refuse(CommandRejection reason, absl::Status status) {
  ports_.metrics.CommandRejected(reason);
  return status;
}

absl::Status TaskTable::RefuseTask(CommandRejection reason, const TaskKey& key,
                                   absl::Status status) {
  RefuseOnData(key);
  return Refuse(reason, std::move(status));
}

absl::StatusOr<TaskTable::StartResult> TaskTable::Start(const StartRequest& request,
                                                        const std::shared_ptr<TaskCaller>& caller) {
  // First of all: a controller that was replaced must not attach to a task either.
  if (absl::Status status = fence_.Check(request.key.epoch); !status.ok()) {
    return RefuseTask(CommandRejection::kStaleEpoch, request.key, status);
  }
  if (WorkerTask* known = Find(request.key)) {
    RETURN_IF_ERROR(CheckSameWork(known->request(), request));
    known->Attach(caller);
    return StartResult::kAttached;
  }
  if (PendingStart* known = pending_.Find(request.key)) {
    RETURN_IF_ERROR(CheckSameWork(known->request, request));
    std::exchange(known->caller, caller)
        ->End(absl::AbortedError("another call has taken over the start"));
    return StartResult::kAttached;
  }
  // Only now, since what has begun is served while the worker drains.
  if (draining_) {
    return RefuseTask(CommandRejection::kBusy, request.key, Draining());
  }
  if (absl::Status status = CheckAttempt(request.key); !status.ok()) {
    return RefuseTask(CommandRejection::kStaleGeneration, request.key, status);
  }
  std::shared_ptr<const LaidOutPart> part = parts_.Find(request.part);
  if (part == nullptr) return StartResult::kNeedPart;
  if (absl::Status status = MakeRoom(); !status.ok()) {
    return RefuseTask(CommandRejection::kBusy, request.key, status);
  }
  RETURN_IF_ERROR(RaiseEpoch(request.key.epoch));
  SupersedeOlderEpochs(request.key);
  PendingStart start{.request = request, .part = std::move(part), .caller = caller};
  const std::vector<TaskKey> writers = FreeFencedDestinations(request, *start.part);
  if (writers.empty()) {
    RETURN_IF_ERROR(TryBegin(start));
  } else {
    Wait(std::move(start), writers);
  }
  return StartResult::kAttached;
}

absl::Status TaskTable::CheckSameWork(const StartRequest& known, const StartRequest& request) {
  if (known.SameWork(request)) return absl::OkStatus();
  return Refuse(
      CommandRejection::kDuplicate,
      absl::AlreadyExistsError(absl::StrCat(
          request.Name(), " was started before with other content: part ", known.part.ToString(),
          " and storage \"", known.destination_storage, "\", now part ", request.part.ToString(),
          " and storage \"", request.destination_storage, "\"")));
}

absl::Status TaskTable::AddPart(const TaskKey& key, const Digest& digest, absl::string_view bytes) {
  absl::StatusOr<std::shared_ptr<const LaidOutPart>> part = AdmitPart(bytes, digest, ports_.memory);
  if (!part.ok()) return RefuseTask(CommandRejection::kInvalid, key, part.status());
  parts_.Insert(digest, *std::move(part), static_cast<int64_t>(bytes.size()));
  return absl::OkStatus();
}

// Attempts of an operation overlap only in their order: a later one may begin while an earlier one
// still has its sources, never the other way round.
absl::Status TaskTable::CheckAttempt(const TaskKey& key) const {
  for (auto it = tasks_.lower_bound(TaskKey{.operation = key.operation, .epoch = key.epoch});
       it != tasks_.end() && it->first.operation == key.operation; ++it) {
    if (it->first.plan <= key.plan) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("attempt ", key.plan, " is over: attempt ", it->first.plan, " of operation ",
                     it->second->request().operation_id, " has begun"));
  }
  return absl::OkStatus();
}

absl::Status TaskTable::CheckDevices(const WorkerPart& part) const {
  for (const DeviceRank rank : part.spec().devices) {
    const DeviceId& device = part.tensors().devices()[rank];
    if (devices_.contains(device)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "part for device ", ToString(device), ": expected a device of worker ", options_.worker));
  }
  return absl::OkStatus();
}

absl::Status TaskTable::MakeRoom() {
  if (tasks_.size() + pending_.size() < options_.tasks_max) return absl::OkStatus();
  const WorkerTask* oldest = nullptr;
  for (const auto& [key, task] : tasks_) {
    if (Live(*task)) continue;
    if (oldest == nullptr || task->ended() < oldest->ended()) oldest = task.get();
  }
  if (oldest == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "worker ", options_.worker, ": expected at most ", options_.tasks_max, " tasks"));
  }
  Forget(TaskKey(oldest->request().key));
  return absl::OkStatus();
}

absl::Status TaskTable::TryBegin(const PendingStart& start) {
  absl::Status status = Begin(start);
  if (status.ok()) return status;
  return RefuseTask(CommandRejection::kInvalid, start.request.key, std::move(status));
}

absl::Status TaskTable::Begin(const PendingStart& start) {
  RETURN_IF_ERROR(CheckDevices(start.part->prepared->part()));
  absl::StatusOr<TaskLeases> leases = TaskLeases::Take(start.request, *start.part, ports_.storages);
  if (!leases.ok()) {
    TellIfSource(start);
    return leases.status();
  }
  auto task = std::make_unique<WorkerTask>(start.request, start.part, *std::move(leases),
                                           ports_.clock.Monotonic());
  ASSIGN_OR_RETURN(TaskSpec spec, task->Specify(options_.worker));
  task->Attach(start.caller);
  AddRelaysInProgress(*task, 1);
  tasks_.emplace(start.request.key, std::move(task));
  ports_.data.Post([this, spec = std::move(spec)]() mutable {
    const TaskKey key = spec.key;
    const absl::Status status = ports_.runner.Start(std::move(spec), *this);
    // What is not there may be there when the controller tries again.
    if (!status.ok() && !absl::IsUnavailable(status)) ports_.runner.Refuse(key);
    ports_.control.Post([this, key, status] { Started(key, status); });
  });
  StartSweeping();
  return absl::OkStatus();
}

// Others may need what this worker has.
void TaskTable::TellIfSource(const PendingStart& start) const {
  if (!TaskLeases::CheckSources(start.request, *start.part, ports_.storages).ok()) return;
  v1::ExecuteResponse response;
  response.mutable_refused_as_receiver();
  start.caller->Say(response);
}

void TaskTable::Started(const TaskKey& key, const absl::Status& status) {
  WorkerTask& task = *Find(key);
  if (status.ok()) {
    task.OnAccepted();
    return;
  }
  ports_.metrics.CommandRejected(CommandRejection::kInvalid);
  AddRelaysInProgress(task, -1);
  task.EndCall(status);
  tasks_.erase(key);
  unwanted_.erase(key);
  BeginPending();
  TellIfIdle();
}

void TaskTable::OnDeviceDone(const TaskKey& key, const DeviceReport& report) {
  ports_.control.Post([this, key, report] { Find(key)->OnDeviceDone(report); });
}

void TaskTable::OnTaskDone(const TaskReport& report) {
  ports_.control.Post([this, report]() mutable { Ended(std::move(report)); });
}

// The task is there: nothing is forgotten before its runner has said its last word.
void TaskTable::Ended(TaskReport report) {
  WorkerTask& task = *Find(report.key);
  report.status.Update(task.CheckSourcesUndisturbed());
  v1::TaskReport told = ToProto(report);
  told.set_worker(options_.worker);
  told.set_attempt(report.key.plan);
  task.OnSourcesReleased(report.released_sources, told);
  task.OnReport(std::move(told), ports_.clock.Monotonic());
  AddRelaysInProgress(task, -1);
  RecordTaskEnd(task.part(), report, options_.link, ports_.metrics);
  if (!report.status.ok()) {
    LogWarning("task_failed", {{"worker_id", options_.worker},
                               {"operation_id", task.request().operation_id},
                               {"attempt", report.key.plan},
                               {"status", report.status.ToString()}});
  }
  if (unwanted_.erase(report.key) > 0) Forget(report.key);
  BeginPending();
  TellIfIdle();
}

void TaskTable::AddRelaysInProgress(const WorkerTask& task, int64_t sign) {
  relays_in_progress_ += sign * std::ssize(task.part().prepared->nodes());
  ports_.metrics.SetRelaysInProgress(TransportOf(options_.link), relays_in_progress_);
}

void TaskTable::Cancel(const TaskKey& key, const TaskCaller& caller, absl::string_view reason) {
  if (FindAttached(key, caller) != nullptr) CancelOnData(key, absl::CancelledError(reason));
  if (pending_.FindWaiting(key, caller) != nullptr) {
    EndPending(key, absl::AbortedError(absl::StrCat("cancelled before it began: ", reason)));
  }
}

void TaskTable::Resolve(const TaskKey& key, const TaskCaller& caller,
                        std::span<const int32_t> devices, bool commit) {
  WorkerTask* task = FindAttached(key, caller);
  if (task == nullptr) return;
  if (const absl::Status status = fence_.Check(task->epoch()); !status.ok()) {
    task->EndCall(Refuse(CommandRejection::kStaleEpoch, status));
    return;
  }
  task->Resolve(devices, commit);
}

void TaskTable::Acknowledge(const TaskKey& key, const TaskCaller& caller) {
  if (pending_.FindWaiting(key, caller) != nullptr) EndPending(key, absl::OkStatus());
  WorkerTask* task = FindAttached(key, caller);
  if (task == nullptr) return;
  task->EndCall(absl::OkStatus());
  Dismiss(key, absl::CancelledError("acknowledged before its end"));
  TellIfIdle();
}

void TaskTable::CallerGone(const TaskKey& key, const TaskCaller& caller) {
  if (pending_.FindWaiting(key, caller) != nullptr) {
    pending_.Take(key);  // it may come again, so the executor is not told
  }
  WorkerTask* task = FindAttached(key, caller);
  if (task == nullptr) return;
  task->Detach(caller);
  TellIfIdle();
}

void TaskTable::PeerLost(const TaskKey& key, absl::string_view worker, absl::string_view reason) {
  if (PendingStart* waiting = pending_.Find(key)) {
    waiting->lost_peers.emplace(worker, reason);
    return;
  }
  ports_.data.Post([this, key, worker = std::string(worker), why = absl::UnavailableError(reason)] {
    ports_.runner.PeerLost(key, worker, why);
  });
}

void TaskTable::CollectProgress(absl::AnyInvocable<void(std::vector<Progress>)> done) {
  std::vector<std::pair<TaskKey, Progress>> tasks;
  for (const auto& [key, task] : tasks_) {
    if (task->state() == WorkerTask::State::kEnded) continue;
    tasks.push_back({key, {.operation_id = task->request().operation_id, .attempt = key.plan}});
  }
  // Only the runner, on its loop, knows what has moved.
  ports_.data.Post([this, tasks = std::move(tasks), done = std::move(done)]() mutable {
    std::vector<Progress> progress;
    for (auto& [key, entry] : tasks) {
      entry.moved_bytes = ports_.runner.MovedBytes(key).value_or(0);
      progress.push_back(std::move(entry));
    }
    ports_.control.Post([done = std::move(done), progress = std::move(progress)]() mutable {
      done(std::move(progress));
    });
  });
}

void TaskTable::Drain(absl::AnyInvocable<void()> idle) {
  draining_ = true;
  EndAllPending(Draining());
  on_idle_.push_back(std::move(idle));
  TellIfIdle();
}

void TaskTable::Undrain() {
  draining_ = false;
  on_idle_.clear();
}

void TaskTable::CancelAll(const absl::Status& why) {
  wait_for_callers_ = false;
  EndAllPending(why);
  for (const auto& [key, task] : tasks_) {
    if (task->state() != WorkerTask::State::kEnded) CancelOnData(key, why);
  }
  TellIfIdle();
}

void TaskTable::RefuseOnData(const TaskKey& key) {
  ports_.data.Post([this, key] { ports_.runner.Refuse(key); });
}

void TaskTable::CancelOnData(const TaskKey& key, absl::Status why) {
  ports_.data.Post([this, key, why = std::move(why)] { ports_.runner.Cancel(key, why); });
}

WorkerTask* TaskTable::Find(const TaskKey& key) const {
  const auto found = tasks_.find(key);
  return found == tasks_.end() ? nullptr : found->second.get();
}

WorkerTask* TaskTable::FindAttached(const TaskKey& key, const TaskCaller& caller) const {
  WorkerTask* task = Find(key);
  return task != nullptr && task->is_caller(caller) ? task : nullptr;
}

void TaskTable::Forget(const TaskKey& key) {
  WorkerTask& task = *Find(key);
  task.AbandonRest();
  task.EndCall(absl::AbortedError("the task is forgotten"));
  tasks_.erase(key);
}

void TaskTable::Dismiss(const TaskKey& key, const absl::Status& why) {
  WorkerTask& task = *Find(key);
  task.EndCall(why);
  if (task.state() == WorkerTask::State::kEnded) {
    Forget(key);
  } else {
    unwanted_.insert(key);
    CancelOnData(key, why);
  }
}

void TaskTable::StartSweeping() {
  if (std::exchange(sweeping_, true)) return;
  ports_.control.RunAfter(kSweepInterval, [this] { Sweep(); });
}

void TaskTable::Sweep() {
  const absl::Duration now = ports_.clock.Monotonic();
  std::vector<TaskKey> old;
  for (const auto& [key, task] : tasks_) {
    if (Live(*task)) continue;
    const absl::Duration due = task->started() + task->request().deadline + options_.abandon_grace;
    if (now >= due && !task->resolved()) {
      task->AbandonRest();
      LogWarning("task_abandoned", {{"worker_id", options_.worker},
                                    {"operation_id", task->request().operation_id},
                                    {"attempt", key.plan}});
    }
    if (now >= task->ended() + options_.report_kept) old.push_back(key);
  }
  for (const TaskKey& key : old) Forget(key);
  sweeping_ = false;
  if (!tasks_.empty()) StartSweeping();
}

bool TaskTable::Live(const WorkerTask& task) {
  return task.state() != WorkerTask::State::kEnded || task.has_caller();
}

void TaskTable::TellIfIdle() {
  if (!draining_ || on_idle_.empty()) return;
  const bool busy = std::any_of(tasks_.begin(), tasks_.end(), [this](const auto& entry) {
    const WorkerTask& task = *entry.second;
    return wait_for_callers_ ? Live(task) : task.state() != WorkerTask::State::kEnded;
  });
  if (busy) return;
  for (absl::AnyInvocable<void()>& idle : std::exchange(on_idle_, {})) idle();
}

}  // namespace crossmesh
