#pragma once

#include "common/base/clock.h"
#include "controller/dispatch/communicator_leases.h"
#include "controller/dispatch/operation_snapshot.h"
#include "controller/dispatch/task_connection.h"
#include "controller/dispatch/task_queue.h"
#include "controller/membership/worker_registry.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// What is to be done once.
struct OperationRequest {
  std::string id;
  uint64_t number = 0;  // the same, for workers
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  std::string source_storage;
  std::string destination_storage;
  bool create_destination = false;
  bool checksums = true;
  std::optional<absl::Duration> deadline;  // nothing: 3 x prediction + 30 s
  absl::Duration stall_limit = absl::Seconds(5);

  using Planned = absl::StatusOr<std::shared_ptr<const PlannedReshard>>;
  // A cached plan; else `plan` is called by a planner's thread.
  std::shared_ptr<const PlannedReshard> planned;
  absl::AnyInvocable<Planned()> plan;
};

// Hears of operations. Called on the runner's queue; must not block.
class OperationSink {
 public:
  virtual ~OperationSink() = default;
  // Makes the intent durable: nothing is started before. `done` may be called at once or later, on
  // any thread.
  virtual void CommitIntent(const OperationSnapshot& operation,
                            absl::AnyInvocable<void(absl::Status)> done) = 0;
  virtual void OnChange(const OperationSnapshot& operation) = 0;
  // The last of an operation.
  virtual void OnFinish(const OperationSnapshot& operation) = 0;
};

// One operation that runs: its machine, fed from calls, timers and membership, and the carrying out
// of the machine's actions. Confined to the queue; never blocks. Shared by the runner, until the
// operation has finished, and by work in progress at a planner.
class RunningOperation : public std::enable_shared_from_this<RunningOperation> {
 public:
  // Between the deadline, or a cancellation, and giving up workers that do not answer.
  static constexpr absl::Duration kEndingGrace = absl::Seconds(5);
  // Least time between two changes that tell of progress only.
  static constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);

  // Time that a GPU's process which has ended has to be replaced, and between two looks.
  static constexpr absl::Duration kProcessReturnTime = absl::Seconds(15);
  static constexpr absl::Duration kProcessPause = absl::Milliseconds(200);

  // All outlive the operation.
  struct Environment {
    WorkerGateway& gateway;
    CommunicatorLeases& communicators;
    WorkerRegistry& workers;
    TaskQueue& queue;     // runs one task after the other
    TaskQueue& planners;  // for what takes long
    const Clock& clock;
    OperationSink& sink;
    uint64_t epoch = 0;
  };

  // `on_finished` is called last, after the sink has heard of the end.
  RunningOperation(const Environment& environment, OperationRequest request,
                   absl::AnyInvocable<void()> on_finished);

  void Begin();
  void Cancel(const std::string& reason);
  void WorkerIsLost(const std::string& worker, const absl::Status& why);
  void Progress(const std::string& worker, uint32_t attempt, int64_t moved_bytes);

  OperationState state() const;

 private:
  // A planning of what remains, and the tasks that it became.
  struct Attempt {
    std::shared_ptr<const PlannedReshard> planned;
    std::vector<int32_t> replica_numbers;  // of the plan's replicas, in the operation
    std::vector<WorkerRecord> workers;     // owners of the plan's devices, by name
    PlannedReshard::DevicesOfWorkers devices;
    std::shared_ptr<const PlannedReshard::Parts> parts;  // in the order of `workers`
    std::shared_ptr<const std::vector<TaskStart::Peer>> peers;
    TaskCommunicators communicators;                     // wanted or leased, if there are any
    std::optional<absl::Duration> communicators_wanted;  // when first
    absl::Status obstacle;                               // why there were none at the last try
    absl::btree_map<std::string, std::shared_ptr<TaskConnection>> tasks;
    absl::btree_map<std::string, absl::Duration> started;
    absl::btree_map<std::string, int64_t> moved_bytes;
  };

  // Planning, in steps; each goes through a planner's thread where it may take long.
  void AtPlanner(absl::AnyInvocable<OperationRequest::Planned()> plan);
  void OnPlanned(OperationRequest::Planned planned);
  void AssignWorkers();
  void OnParts(absl::StatusOr<std::shared_ptr<const PlannedReshard::Parts>> parts);
  // Last of all, for plans between GPUs: what fails it fails the planning.
  void GetCommunicators();
  void OnCommunicators(size_t attempt, const absl::Status& status);
  void OnCommunicatorsTooLate();
  void TryCommunicatorsAgain(const absl::Status& why);
  std::vector<WorkerShare> Shares();
  void FailPlanning(const absl::Status& status) { Feed(PlanFailed{status}); }

  std::string LeaseOf(size_t attempt) const;
  // Each communicator's first rank at a worker, where it has any.
  static std::vector<RankName> RanksAt(const Attempt& attempt, const std::string& worker);
  // Says so when the task that ended has found communicators broken.
  void TellBroken(size_t attempt, const TaskEnded& ended);
  // Gives the leases back, or the wait for them up. A communicator that a task may still use is of
  // no use to others.
  void ReturnCommunicators(size_t attempt);

  void Feed(const OperationEvent& event);
  void Observe(const OperationEvent& event);
  void Hear(uint32_t attempt, const OperationEvent& event);
  void Do(const CommitIntent& action);
  void Do(const StartTask& action);
  void Do(const CancelTask& action);
  void Do(const ResolveDevices& action);
  void Do(const TellPeerLost& action);
  void Do(const PlanAgain& action);
  void Do(const AcknowledgeTask& action);
  void Do(const PublishChange& action);
  void Do(const FinishOperation& action);
  TaskConnection& Task(const std::string& worker, uint32_t attempt);
  TaskStart StartOf(size_t worker) const;

  void StartDeadline(absl::Duration deadline);
  void SetTimer(absl::Duration delay);
  void Publish();
  OperationSnapshot Snapshot() const;
  OperationReport Report() const;
  int64_t MovedBytes() const;

  const Environment environment_;
  OperationRequest request_;
  absl::AnyInvocable<void()> on_finished_;

  std::optional<OperationMachine> machine_;  // none until the replicas are known
  std::vector<Attempt> attempts_;            // the present one last
  bool awaits_communicators_ = false;
  bool finished_ = false;
  bool changed_ = false;  // since the last snapshot
  int64_t revision_ = 1;  // the first was published by whoever accepted the request
  TaskQueue::Timer deadline_timer_;
  TaskQueue::Timer progress_timer_;

  const absl::Duration begin_;
  const absl::Time create_time_;
  absl::Duration deadline_;    // from the beginning; zero while not known
  absl::Duration dispatched_;  // first task of the first attempt
  absl::Duration accepted_;    // last acceptance of the first attempt
  absl::Duration verified_;    // last device
  std::vector<absl::Duration> acceptance_times_;
};

}  // namespace crossmesh
