#pragma once

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/mesh/device.h"
#include "common/metrics/worker_metrics.h"
#include "worker/executor/task_runner.h"
#include "worker/memory/memory_budget.h"
#include "worker/memory/storage_table.h"
#include "worker/tasks/epoch_fence.h"
#include "worker/tasks/part_cache.h"
#include "worker/tasks/pending_starts.h"
#include "worker/tasks/start_request.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

class WorkerPart;
class WorkerTask;

// The tasks of this worker, below gRPC: which may start, what memory they get, which callers hear
// of them, and how long it is remembered.
//
// An accepted task runs on to its deadline when its caller goes away, and its report waits for a
// caller that comes again: until it is acknowledged, until a controller of a higher epoch starts
// the same operation, or until `report_kept` has passed. A controller of a higher epoch may adopt
// the task, which is then its own. Destinations that are not resolved are
// abandoned `abandon_grace` after the task's deadline, or as soon as a controller of a higher epoch
// wants the same memory. A task without a caller that still writes there then is cancelled, and the
// start waits for its end.
//
// Confined to the control loop; the runner is driven on the data loop, and what it says comes
// back by Post. Both loops must have stopped before this is destroyed.
class TaskTable : private TaskObserver {
 public:
  struct Options {
    std::string worker;
    std::vector<DeviceId> devices;
    TransportLink link = TransportLink::kSocketTcp;  // to other workers, for metrics
    PartCache::Limits parts;
    size_t tasks_max = 1024;
    absl::Duration abandon_grace = absl::Seconds(30);
    absl::Duration report_kept = absl::Hours(1);
  };

  // All outlive the table.
  struct Ports {
    EventLoop& control;
    EventLoop& data;
    TaskRunner& runner;  // on the data loop
    StorageTable& storages;
    MemoryBudget& memory;  // of which parts take
    const Clock& clock;
    WorkerMetrics& metrics;
  };

  enum class StartResult { kAttached, kNeedPart };

  TaskTable(Options options, Ports ports, EpochFence fence);
  ~TaskTable() override;

  // Starts a task for `caller`, or attaches the caller to the task of this key. What becomes of it
  // the caller is told: Accepted, or the end of its call. Errors, which are counted:
  //   FailedPrecondition  epoch or attempt is over; a storage is missing or of another size; the
  //                       worker drains, so that its tasks are planned without it
  //   AlreadyExists       the key is that of a task that was started otherwise
  //   InvalidArgument     the part is not for this worker's devices; a peer is missing
  //   Aborted             another task writes a destination; of a former controller's task that
  //                       does not end in time, the caller is told so later
  //   ResourceExhausted   too many tasks, no memory
  //   Unavailable         the epoch cannot be written down
  absl::StatusOr<StartResult> Start(const StartRequest& request,
                                    const std::shared_ptr<TaskCaller>& caller);
  // From now on no controller of a lower epoch is obeyed. Errors, which are counted:
  // FailedPrecondition: this one is not, a higher one was seen; Unavailable: as for Start.
  absl::Status Obey(uint64_t epoch);
  // Attaches the caller, whose controller has taken over, to the task that a former one started.
  //   FailedPrecondition  a controller of a higher epoch is obeyed; the part is another one
  //   NotFound            there is no such task, and the former controller starts none any more
  //   Unavailable         the epoch cannot be written down
  absl::Status Adopt(const AdoptRequest& request, const std::shared_ptr<TaskCaller>& caller);
  // The part that Start of `key` needed. InvalidArgument: the bytes are not
  // that part, or LaidOutPart::Create refuses it. ResourceExhausted: as MemoryBudget says, before
  // memory is spent.
  absl::Status AddPart(const TaskKey& key, const Digest& digest, absl::string_view bytes);

  // Of the task of `key`, when `caller` is attached to it; nothing happens otherwise.
  void Cancel(const TaskKey& key, const TaskCaller& caller, absl::string_view reason);
  void Resolve(const TaskKey& key, const TaskCaller& caller, std::span<const int32_t> devices,
               bool commit);
  // Forgets the task and ends the call with OK; a task that runs is cancelled first.
  void Acknowledge(const TaskKey& key, const TaskCaller& caller);
  void CallerGone(const TaskKey& key, const TaskCaller& caller);
  // Another worker is gone, or takes no part in the task of `key`.
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::string_view reason);

  struct Progress {
    std::string operation_id;
    uint32_t attempt = 0;
    int64_t moved_bytes = 0;
  };
  // Calls `done` with all running tasks, later, on the control loop.
  void CollectProgress(absl::AnyInvocable<void(std::vector<Progress>)> done);

  // Of controllers of `epoch` or a lower one: the operations of which there are tasks, also ended
  // ones, each once.
  std::vector<std::string> HeldOperations(uint64_t epoch) const;
  // They have ended at the controller of `epoch`, which resolves none of their tasks any more, nor
  // does a former one: what runs of them is cancelled, what is not resolved abandoned.
  void GiveUp(std::span<const std::string> operations, uint64_t epoch);

  // From now on no task is started. Calls `idle` once no task runs and no caller has business left;
  // at once when that is so. Each time that it is asked, so that a second one does not undo the
  // first.
  void Drain(absl::AnyInvocable<void()> idle);
  // Tasks are started again, and no `idle` is called for what has been asked.
  void Undrain();
  // Cancels every task that runs. A drain waits for no caller from now on.
  void CancelAll(const absl::Status& why);

  size_t size() const { return tasks_.size(); }
  const EpochFence& fence() const { return fence_; }

 private:
  using Tasks = absl::btree_map<TaskKey, std::unique_ptr<WorkerTask>>;

  // On the data loop.
  void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override;
  void OnTaskDone(const TaskReport& report) override;

  absl::Status Draining() const;
  absl::Status Refuse(CommandRejection reason, absl::Status status);
  // For good: what other workers send for the task must not wait here.
  absl::Status RefuseTask(CommandRejection reason, const TaskKey& key, absl::Status status);
  // Refuses a start of the same key that is other work.
  absl::Status CheckSameWork(const StartRequest& known, const StartRequest& request);
  absl::Status RaiseEpoch(uint64_t epoch);
  absl::Status CheckAttempt(const TaskKey& key) const;
  absl::Status CheckDevices(const WorkerPart& part) const;
  absl::Status MakeRoom();
  absl::Status TryBegin(const PendingStart& start);
  absl::Status Begin(const PendingStart& start);
  // When the start is refused for the sake of a destination only.
  void TellIfSource(const PendingStart& start) const;

  // Between controllers: task_table_fencing.cc.
  void SupersedeOlderEpochs(const TaskKey& key);
  // Frees what can be freed; returns tasks of lower epochs without a caller that still write.
  std::vector<TaskKey> FreeFencedDestinations(const StartRequest& request, const LaidOutPart& part);
  void Wait(PendingStart start, const std::vector<TaskKey>& writers);
  void BeginPending();
  void EndPending(const TaskKey& key, const absl::Status& status);
  void EndAllPending(const absl::Status& status);

  void RefuseOnData(const TaskKey& key);
  void CancelOnData(const TaskKey& key, absl::Status why);

  void Started(const TaskKey& key, const absl::Status& status);
  void Ended(TaskReport report);
  void AddRelaysInProgress(const WorkerTask& task, int64_t sign);
  WorkerTask* Find(const TaskKey& key) const;
  // Null unless `caller` is attached to it.
  WorkerTask* FindAttached(const TaskKey& key, const TaskCaller& caller) const;
  // The task runs no more; abandons what is not resolved.
  void Forget(const TaskKey& key);
  // Forgets the task, which is cancelled first when it still runs.
  void Dismiss(const TaskKey& key, const absl::Status& why);
  void StartSweeping();
  void Sweep();
  // Does it run, or has it a caller?
  static bool Live(const WorkerTask& task);
  void TellIfIdle();

  const Options options_;
  const Ports ports_;
  const absl::flat_hash_set<DeviceId> devices_;
  EpochFence fence_;
  PartCache parts_;
  PendingStarts pending_;
  Tasks tasks_;
  absl::flat_hash_set<TaskKey> unwanted_;  // acknowledged or superseded while they ran
  int64_t relays_in_progress_ = 0;
  bool sweeping_ = false;
  bool draining_ = false;
  bool wait_for_callers_ = true;  // when draining
  std::vector<absl::AnyInvocable<void()>> on_idle_;
};

}  // namespace crossmesh
