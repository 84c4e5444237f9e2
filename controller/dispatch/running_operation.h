#pragma once

#include "common/base/clock.h"
#include "controller/dispatch/job_sink.h"
#include "controller/dispatch/planning_queue.h"
#include "controller/dispatch/task_queue.h"
#include "controller/dispatch/worker_gateway.h"
#include "controller/operation/operation_machine.h"
#include "crossmesh/stored/v1/operation.pb.h"
#include "crossmesh/v1/execution_service.pb.h"
#include "crossmesh/v1/operation_service.pb.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

class CommunicatorLeases;
class ControllerMetrics;
class OperationTimes;
class PlannedReshard;
class StartGate;
class TaskConnection;
class WorkerPart;
class WorkerRegistry;
struct OperationAttempt;
struct OperationPlan;
struct TaskConnectionOptions;

// What is to be done once.
struct OperationRequest {
  v1::Operation shown;  // as clients see it before anything has happened
  // What all workers are told in all attempts.
  v1::ExecuteRequest::Start start;
  std::optional<absl::Duration> deadline;  // nothing: DefaultDeadline
  std::string client;                      // as PlanningRequest::client

  using Planned = absl::StatusOr<std::shared_ptr<const PlannedReshard>>;
  // A cached plan; else `plan` is called by a planner's thread, and calls its argument with what
  // came of it, then or later on another one.
  std::shared_ptr<const PlannedReshard> planned;
  absl::AnyInvocable<void(absl::AnyInvocable<void(Planned)>)> plan;
  int64_t plan_cost = 0;  // as PlanningCost counts
  // In place of all but `shown`: what a former controller has left of it, checked.
  std::optional<stored::v1::OperationResumption> resumption;
};

// One operation that runs: its machine, fed from calls, timers and membership, and the carrying out
// of the machine's actions. Confined to the queue; never blocks. Shared by the table of what runs,
// until the operation has finished, and by work in progress at a planner.
class RunningOperation : public std::enable_shared_from_this<RunningOperation> {
 public:
  using Request = OperationRequest;

  static constexpr int64_t kRunsMax = 256;  // at once
  static constexpr absl::string_view kPlural = "operations";
  // Between the deadline, or a cancellation, and giving up workers that do not answer.
  static constexpr absl::Duration kEndingGrace = absl::Seconds(5);
  // Least time between two changes that tell of progress only.
  static constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);
  // That workers have to answer the controller that takes their tasks up.
  static constexpr absl::Duration kAdoptLimit = absl::Seconds(10);
  // Between two looks for workers that come back.
  static constexpr absl::Duration kLookPause = absl::Milliseconds(100);

  // All outlive the operation.
  struct Environment {
    TaskGateway& gateway;
    CommunicatorLeases& communicators;
    WorkerRegistry& workers;
    TaskQueue& queue;         // runs one task after the other
    PlanningQueue& planners;  // for what takes long
    StartGate& gate;
    const Clock& clock;
    JobSink<v1::Operation>& sink;
    ControllerMetrics& metrics;
    uint64_t epoch = 0;
  };

  // `on_finished` is called last, when the sink has recorded the end.
  RunningOperation(const Environment& environment, OperationRequest request,
                   absl::AnyInvocable<void()> on_finished);
  ~RunningOperation();

  void Begin();
  void Cancel(const std::string& reason);
  void WorkerIsLost(const std::string& worker, const absl::Status& why);
  void Progress(const std::string& worker, uint32_t attempt, int64_t moved_bytes);

  OperationState state() const;

 private:
  // Planning, in steps; each goes through a planner's thread where it may take long.
  template <typename Result>
  using Work = absl::AnyInvocable<void(absl::AnyInvocable<void(Result)> done)>;
  template <typename Result>
  void AtPlanner(int64_t cost, Work<Result> work, void (RunningOperation::*next)(Result));
  // Puts it on record as it is shown now.
  void Commit(std::string resumption, void (RunningOperation::*next)(const absl::Status&));
  void OnAccepted(const absl::Status& status);
  void OnPlanned(OperationRequest::Planned planned);
  void AssignWorkers();
  void AwaitWorkers();
  using Parts = absl::StatusOr<std::shared_ptr<const std::vector<WorkerPart>>>;
  void OnParts(Parts parts);
  using Hope = absl::StatusOr<Hopeless>;
  void OnHope(Hope hope);
  // Last of all, for plans between GPUs: what fails it fails the planning.
  void GetCommunicators();
  void PassGate();
  void StartTasks();
  void FailPlanning(const absl::Status& status) { Feed(PlanFailed{status}); }
  OperationAttempt& AddAttempt();

  // What a former controller has left: running_operation_resumption.cc.
  void TakeUp();
  void TakeUpAttempts();
  TaskConnectionOptions Adoption(uint32_t attempt,
                                 const stored::v1::OperationResumption::Worker& worker);
  void Adopt(const StartTask& action);
  void LoseUnheard();
  // What is missing stays so: the plan, and what it was made of, ended with its controller.
  void PlanNoMore();
  // Others may start tasks as soon as none of this operation can lose its destinations, nor share
  // its GPUs, with them.
  void OpenGate();

  void Feed(const OperationEvent& event);
  void Observe(const OperationEvent& event);
  void Hear(uint32_t attempt, const OperationEvent& event);
  void Do(const CommitIntent& action);
  void Do(const StartTask& action);
  void Do(const CancelTask& action);
  void Do(const ResolveDevices& action);
  void Do(const TellPeerLost& action);
  void Do(const AwaitWord& action);
  void Do(const PlanAgain& action);
  void Do(const CheckHope& action);
  void Do(const AcknowledgeTask& action);
  void Do(const PublishChange& action);
  void Do(const FinishOperation& action);
  // What the task says of communicators and links, for those who keep them.
  void HearEnd(uint32_t attempt, const TaskEnded& ended);
  void TellLinksThatWork();
  TaskConnection& Task(const std::string& worker, uint32_t attempt);
  // What all connections to workers have in common.
  TaskConnectionOptions Connection(const std::string& worker, uint32_t attempt);

  void OnIntent(const absl::Status& status);
  void StartDeadline(absl::Duration deadline);
  absl::Duration TimeLeft() const;
  void SetTimer(absl::Duration delay);
  void Show();
  void Publish();
  void RecordEnd(const v1::OperationReport& report);
  void OnRecorded(const absl::Status& status);
  v1::OperationReport Report() const;

  const Environment environment_;
  OperationRequest request_;
  absl::AnyInvocable<void()> on_finished_;

  std::optional<OperationMachine> machine_;    // none until the replicas are known
  std::shared_ptr<const OperationPlan> plan_;  // null until there is one
  std::vector<OperationAttempt> attempts_;     // the present one last
  v1::Operation shown_;                        // as clients see it
  const std::unique_ptr<OperationTimes> times_;
  absl::Duration deadline_;                              // from the beginning; zero while not known
  std::vector<AcknowledgeTask> to_acknowledge_;          // once the end is recorded
  std::shared_ptr<const void> hold_;                     // null but while this is taken up
  bool accepted_ = false;                                // it is on record
  std::optional<OperationRequest::Planned> early_plan_;  // that came before
  bool finished_ = false;
  bool changed_ = false;  // since it was published last
  TaskQueue::Timer deadline_timer_;
  TaskQueue::Timer progress_timer_;
  TaskQueue::Timer look_timer_;
};

}  // namespace crossmesh
