#pragma once

#include "common/plan/indices.h"
#include "controller/operation/accusations.h"
#include "controller/operation/left_operation.h"
#include "controller/operation/operation_state.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Events, in the order in which they happened.
struct Planned {                    // the plan of the present attempt is proven and cut
  std::vector<WorkerShare> shares;  // of every worker that takes part
};
struct PlanFailed {
  absl::Status status;
};
struct IntentCommitted {};
struct IntentFailed {  // nothing has been started, and nothing will be
  absl::Status status;
};
struct TaskAccepted {
  std::string worker;
};
struct DeviceDone {
  std::string worker;
  DeviceRank device = 0;
  absl::Status status;
};
// The worker's task ended, whether it was accepted or not; it touches no destination buffer of the
// attempt any more.
struct TaskEnded {
  std::string worker;
  absl::Status status;
  std::vector<std::string> lost_peers;
  bool as_receiver = false;  // not accepted for its destinations' sake only: it may still send
};
struct DevicesResolved {
  std::string worker;
  std::vector<DeviceRank> devices;
  absl::Status status;
};
struct WorkerLost {
  std::string worker;
  absl::Status status;
};
struct Hopeless {  // no plan can serve these replicas without the workers that are gone: why
  std::set<int32_t> replicas;
  absl::Status status;
};
struct WordAwaited {  // what AwaitWord asks for
  uint32_t attempt = 1;
};
struct CancelRequested {
  std::string reason;
};
// The deadline, or, when the operation is ending already, the end of its grace: tasks that have not
// ended count as lost.
struct DeadlinePassed {};
using OperationEvent =
    std::variant<Planned, PlanFailed, IntentCommitted, IntentFailed, TaskAccepted, DeviceDone,
                 TaskEnded, DevicesResolved, WorkerLost, Hopeless, WordAwaited, CancelRequested,
                 DeadlinePassed>;

// Actions, to be carried out in order.
struct CommitIntent {};  // of the attempt; then IntentCommitted or IntentFailed
struct StartTask {       // then TaskAccepted or TaskEnded
  std::string worker;
  uint32_t attempt = 1;
};
struct CancelTask {  // then TaskEnded
  std::string worker;
  uint32_t attempt = 1;
  std::string reason;
};
struct ResolveDevices {  // then DevicesResolved
  std::string worker;
  uint32_t attempt = 1;
  std::vector<DeviceRank> devices;
  bool commit = false;
};
struct TellPeerLost {  // to `worker`: `lost` is gone
  std::string worker;
  uint32_t attempt = 1;
  std::string lost;
  std::string reason;
};
struct AwaitWord {  // of one that others accuse: leave it a moment to speak; then WordAwaited
  uint32_t attempt = 1;
};
struct PlanAgain {  // then Planned or PlanFailed
  uint32_t attempt = 2;
  std::set<int32_t> replicas;     // what remains to be served
  std::set<std::string> without;  // workers that are lost or refused
};
struct CheckHope {                // could they be planned again now? then Hopeless, or nothing
  std::set<int32_t> replicas;     // that failed for want of a worker
  std::set<std::string> without;  // workers that are lost or refused
};
// Once the end is recorded, the worker may forget the task and release its sources.
struct AcknowledgeTask {
  std::string worker;
  uint32_t attempt = 1;
};
struct PublishChange {};    // watchers are to be told
struct FinishOperation {};  // terminal: record, report, forget
using OperationAction =
    std::variant<CommitIntent, StartTask, CancelTask, ResolveDevices, TellPeerLost, AwaitWord,
                 PlanAgain, CheckHope, AcknowledgeTask, PublishChange, FinishOperation>;

// The life of one operation: events in, actions out. Pure: no clock, no I/O, no threads.
// Thread-compatible; its owner feeds it one event at a time.
//
//   PREPARING --Planned, IntentCommitted, all accepted--> RUNNING --some replica whole--> VERIFYING
//   any of them --> COMMITTED | PARTIAL | FAILED | CANCELLED
//
// A worker that refuses is left out from then on; one that refuses as a receiver only stays a
// source.
//
// A replica commits when all its devices are done with OK, and by itself: others may still receive.
// It fails when a worker that owns one of its devices is lost. What it was to get through another
// worker that is lost, or over a link that has failed, is planned again once, when every task of
// the first attempt has ended, and fails for good when that does not work either, or as soon as it
// is clear that it will not. An error that planning cannot mend (a checksum that differs, no
// memory) fails the replica at once. The operation is over when every replica has committed or
// failed, every task has ended or its worker is lost, and every device is resolved.
class OperationMachine {
 public:
  using DeviceOfWorker = std::pair<std::string, DeviceRank>;

  struct Replica {
    ReplicaState state = ReplicaState::kReceiving;
    std::set<DeviceOfWorker> devices;    // that receive it in the present attempt
    std::set<DeviceOfWorker> done;       // complete and verified
    std::set<DeviceOfWorker> committed;  // current at their workers
    bool committing = false;
    bool to_retry = false;  // failed only for want of another worker
    absl::Status error;     // why it failed, or is to be planned again; OK once it is committed
  };

  // `replicas` >= 0, as the operation's TensorTable counts them.
  explicit OperationMachine(int32_t replicas) : replicas_(replicas) {}
  // Takes up what another controller has left. Its first event is IntentCommitted, to which it
  // answers with the tasks of the attempt; those that run are not started, but adopted.
  explicit OperationMachine(LeftOperation left);

  // What to do now, in order. Events that came too late or twice give no action: messages repeat.
  std::vector<OperationAction> Handle(const OperationEvent& event);

  OperationState state() const { return state_; }
  uint32_t attempt() const { return attempt_; }
  const std::vector<Replica>& replicas() const { return replicas_; }
  // The first error, naming the worker to blame; OK while there is none.
  const absl::Status& error() const { return error_; }
  // Workers of the present attempt whose tasks have not been heard of.
  std::vector<std::string> Unheard() const;

 private:
  enum class TaskState : uint8_t { kStarting, kAccepted, kEnded, kLost };
  enum class Patience : uint8_t { kHas, kWaits, kHasNone };
  struct Task {
    WorkerShare share;
    TaskState state = TaskState::kStarting;
    bool accepted = false;            // ever, so that it holds leases
    std::set<DeviceRank> unresolved;  // asked to resolve, not answered
    std::set<DeviceRank> resolved;    // asked and answered
    bool ended() const { return state == TaskState::kEnded || state == TaskState::kLost; }
  };

  void AddTasks(const std::vector<WorkerShare>& shares);
  void On(const Planned& event);
  void On(const PlanFailed& event);
  void On(const IntentCommitted& event);
  void On(const IntentFailed& event);
  void On(const TaskAccepted& event);
  void On(const DeviceDone& event);
  void On(const TaskEnded& event);
  void On(const DevicesResolved& event);
  void On(const WorkerLost& event);
  void On(const Hopeless& event);
  void On(const WordAwaited& event);
  void On(const CancelRequested& event);
  void On(const DeadlinePassed& event);

  // Null when the worker has no task in the present attempt.
  Task* FindTask(absl::string_view worker);
  void StartTasks();
  void DeviceFailed(const std::string& worker, DeviceRank device, const absl::Status& status);
  void FailReplica(int32_t index, const absl::Status& status);
  void CommitWhereWhole(int32_t index);
  void LoseWorker(const std::string& worker, const absl::Status& status);
  void Judge();
  std::vector<Accusations::Witness> Witnesses() const;
  void BeginEnding(const absl::Status& why);
  // Carries on when all tasks of the attempt have ended: abandons, plans again or finishes.
  void Settle();
  void Abandon();
  bool EverythingResolved() const;
  // Workers that are missing: operation_replanning.cc.
  bool PlanRemaining();
  // While tasks run, whenever more has failed or gone: what is hopeless does not wait for their
  // end.
  void AskForHope();
  std::set<int32_t> ToRetry() const;
  std::set<std::string> Without() const;
  void Finish();
  template <typename Action>
  void Do(Action action) {
    actions_.push_back(std::move(action));
  }
  void Blame(const absl::Status& status);
  // Why there is no plan, with the workers that it had to do without.
  absl::Status WithAbsent(const absl::Status& status) const;

  OperationState state_ = OperationState::kPreparing;
  uint32_t attempt_ = 1;
  bool planned_ = false;  // the present attempt
  bool started_ = false;  // its tasks
  std::vector<Replica> replicas_;
  std::vector<Task> tasks_;  // of the present attempt, in the order of the shares
  // Tasks of earlier attempts whose workers still hold leases on sources.
  std::vector<std::pair<std::string, uint32_t>> earlier_tasks_;
  Accusations accusations_;                // in the present attempt, not explained yet
  Patience patience_ = Patience::kHas;     // with those that are accused and silent, likewise
  std::set<std::string> lost_workers_;     // that are gone
  std::set<std::string> avoided_workers_;  // that are there and refused
  absl::btree_map<std::string, std::string>
      absent_;           // of both, those of the first attempt, and why
  CheckHope asked_;      // last
  absl::Status ending_;  // why nothing new is begun; OK: not ending
  absl::Status error_;
  std::vector<OperationAction> actions_;  // of the event being handled
};

}  // namespace crossmesh
