// What becomes of tasks that no controller resolves any more: those of former controllers, and
// those of operations that have ended.

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/tasks/task_leases.h"
#include "worker/tasks/task_table.h"
#include "worker/tasks/worker_task.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

bool SharesStorage(const std::vector<StorageKey>& a, const std::vector<StorageKey>& b) {
  return std::ranges::find_first_of(a, b) != a.end();
}

// Half of what its peers, who may have begun, wait for a sign of this worker.
absl::Duration WaitMax(const StartRequest& request) {
  return std::min(request.stall_limit, request.deadline) / 2;
}

}  // namespace

absl::Status TaskTable::RaiseEpoch(uint64_t epoch) {
  const uint64_t before = fence_.highest();
  if (const absl::Status status = fence_.Raise(epoch); !status.ok()) {
    // Whatever the disk's error, the start may be tried again.
    return Refuse(CommandRejection::kBusy, absl::UnavailableError(status.message()));
  }
  if (epoch > before) {
    LogInfo("controller_epoch_raised",
            {{"worker_id", options_.worker}, {"epoch", epoch}, {"before", before}});
    ports_.data.Post([this, epoch] { ports_.runner.RaiseEpoch(epoch); });
  }
  return absl::OkStatus();
}

absl::Status TaskTable::Obey(uint64_t epoch) {
  if (absl::Status status = fence_.Check(epoch); !status.ok()) {
    return Refuse(CommandRejection::kStaleEpoch, std::move(status));
  }
  return RaiseEpoch(epoch);
}

absl::Status TaskTable::Adopt(const AdoptRequest& request,
                              const std::shared_ptr<TaskCaller>& caller) {
  // Before anything is said: the former controller must not start what is not found here.
  RETURN_IF_ERROR(Obey(request.by_epoch));
  WorkerTask* task = Find(request.key);
  if (task == nullptr || unwanted_.contains(request.key)) {
    return absl::NotFoundError(absl::StrCat("worker ", options_.worker, ": expected a task of ",
                                            request.operation_id, ", attempt ", request.key.plan,
                                            ", to adopt, found none"));
  }
  if (task->request().part != request.part) {
    return Refuse(CommandRejection::kDuplicate,
                  absl::FailedPreconditionError(absl::StrCat(
                      task->request().Name(), ": expected part ", request.part.ToString(),
                      " to adopt, found part ", task->request().part.ToString())));
  }
  LogInfo("task_adopted", {{"worker_id", options_.worker},
                           {"operation_id", task->request().operation_id},
                           {"epoch", request.by_epoch}});
  task->Adopt(caller, request.by_epoch);
  return absl::OkStatus();
}

void TaskTable::SupersedeOlderEpochs(const TaskKey& key) {
  std::vector<TaskKey> older;
  for (auto it = tasks_.lower_bound(TaskKey{.operation = key.operation});
       it != tasks_.end() && it->first.operation == key.operation; ++it) {
    if (it->second->epoch() < key.epoch) older.push_back(it->first);
  }
  for (const TaskKey& old : older) {
    Dismiss(old, absl::AbortedError(absl::StrCat("superseded by controller epoch ", key.epoch)));
  }
}

// No controller that is obeyed can resolve a task of a lower epoch any more.
std::vector<TaskKey> TaskTable::FreeFencedDestinations(const StartRequest& request,
                                                       const LaidOutPart& part) {
  std::vector<TaskKey> writers;
  const std::vector<StorageKey> wanted = TaskLeases::Destinations(request, part);
  for (const auto& [key, task] : tasks_) {
    if (task->epoch() >= request.key.epoch) continue;
    if (!SharesStorage(TaskLeases::Destinations(task->request(), task->part()), wanted)) continue;
    if (task->state() == WorkerTask::State::kEnded) {
      task->AbandonRest();
    } else if (!task->has_caller()) {
      writers.push_back(key);
    }
  }
  return writers;
}

std::vector<std::string> TaskTable::HeldOperations(uint64_t epoch) const {
  std::set<std::string> operations;
  for (const auto& [key, task] : tasks_) {
    if (task->epoch() <= epoch && !unwanted_.contains(key)) {
      operations.insert(task->request().operation_id);
    }
  }
  return {operations.begin(), operations.end()};
}

void TaskTable::GiveUp(std::span<const std::string> operations, uint64_t epoch) {
  std::vector<TaskKey> over;
  for (const auto& [key, task] : tasks_) {
    const std::string& operation = task->request().operation_id;
    if (task->epoch() > epoch || unwanted_.contains(key)) continue;
    if (std::ranges::find(operations, operation) == operations.end()) continue;
    over.push_back(key);
    LogWarning(
        "task_given_up",
        {{"worker_id", options_.worker}, {"operation_id", operation}, {"attempt", key.plan}});
  }
  for (const TaskKey& key : over) {
    Dismiss(key, absl::AbortedError("the operation has ended at its controller"));
  }
  BeginPending();
  TellIfIdle();
}

void TaskTable::Wait(PendingStart start, const std::vector<TaskKey>& writers) {
  const TaskKey key = start.request.key;
  for (const TaskKey& writer : writers) {
    if (unwanted_.contains(writer)) continue;  // cancelled already
    CancelOnData(writer, absl::AbortedError(absl::StrCat("controller epoch ", key.epoch,
                                                         " wants its destinations")));
  }
  start.awaited = Find(writers.front())->request().operation_id;
  const absl::Duration wait_max = WaitMax(start.request);
  LogInfo("start_waits", {{"worker_id", options_.worker},
                          {"operation_id", start.request.operation_id},
                          {"for_operation_id", start.awaited}});
  pending_.Add(std::move(start), wait_max, [this, key, wait_max] {
    EndPending(
        key, Refuse(CommandRejection::kBusy,
                    absl::AbortedError(absl::StrCat(
                        "destinations are being written by operation ", pending_.Find(key)->awaited,
                        " of a former controller: expected its end within ",
                        absl::FormatDuration(wait_max), " of its cancellation"))));
  });
}

// Some task has ended.
void TaskTable::BeginPending() {
  for (const TaskKey& key : pending_.keys()) {
    const PendingStart& waiting = *pending_.Find(key);
    if (!FreeFencedDestinations(waiting.request, *waiting.part).empty()) continue;
    const PendingStart start = pending_.Take(key);
    absl::Status status = fence_.Check(key.epoch);
    if (status.ok()) status = TryBegin(start);
    if (!status.ok()) start.caller->End(status);
    for (const auto& [worker, reason] : start.lost_peers) PeerLost(key, worker, reason);
  }
}

void TaskTable::EndPending(const TaskKey& key, const absl::Status& status) {
  const PendingStart start = pending_.Take(key);
  RefuseOnData(key);
  start.caller->End(status);
}

void TaskTable::EndAllPending(const absl::Status& status) {
  for (const TaskKey& key : pending_.keys()) EndPending(key, status);
}

}  // namespace crossmesh
