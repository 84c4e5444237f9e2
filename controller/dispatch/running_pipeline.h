#pragma once

#include "common/base/cancel_check.h"
#include "common/base/clock.h"
#include "common/mesh/device.h"
#include "controller/dispatch/iteration_times.h"
#include "controller/dispatch/job_numbers.h"
#include "controller/dispatch/job_sink.h"
#include "controller/dispatch/planning_queue.h"
#include "controller/dispatch/task_queue.h"
#include "controller/dispatch/worker_gateway.h"
#include "controller/membership/worker_registry.h"
#include "controller/operation/pipeline_machine.h"
#include "crossmesh/stored/v1/pipeline.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <array>
#include <atomic>
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
#include <absl/time/time.h>

namespace crossmesh {

class RunnablePlan;

// What is to be run once.
struct PipelineRequest {
  v1::PipelineRun shown;  // as clients see it before anything has happened
  bool checksums = true;
  std::optional<absl::Duration> iteration_deadline;  // nothing: DefaultDeadline
  absl::Duration stall_limit = absl::Seconds(5);
  absl::Duration rejoin_limit = absl::Seconds(30);
  bool stop_at_failure = false;
  std::string resumption;  // what another controller needs to take it up
  // How far it has come, when it is taken up from another controller.
  std::optional<stored::v1::PipelineProgress> left;

  using Planned = absl::StatusOr<std::shared_ptr<const RunnablePlan>>;
  // Called once, by a planner's thread.
  absl::AnyInvocable<Planned(CancelCheck)> plan;
  int64_t plan_cost = 0;  // as PlanningCost counts
  std::string client;     // as PlanningRequest::client
};

// One pipeline, or layer program, that runs: its machine, fed from calls, timers and membership,
// and the carrying out of the machine's actions. Confined to the queue; never blocks. Shared by the
// table of what runs, until the run has finished, by its calls, and by work in progress at a
// planner.
//
// Its intent is on record before any program starts, and how far it has come before any worker is
// told of it. One that another controller has left is planned anew, and waits for its workers,
// which give up the former one's programs when they start those of this one.
class RunningPipeline : public std::enable_shared_from_this<RunningPipeline> {
 public:
  using Request = PipelineRequest;

  static constexpr int64_t kRunsMax = 64;  // at once
  static constexpr absl::string_view kPlural = "pipelines";
  // Time that workers have to accept their programs.
  static constexpr absl::Duration kAcceptLimit = absl::Seconds(30);
  // The same where state is lost: processes may have checkpoints to read before they go on.
  static constexpr absl::Duration kRestoreLimit = absl::Minutes(10);
  // Time that calls have to end, once the programs are stopped.
  static constexpr absl::Duration kEndingGrace = absl::Seconds(5);
  // Between two looks for workers that are not there.
  static constexpr absl::Duration kLookPause = absl::Milliseconds(200);
  // Between two tries to record progress, while the store takes nothing.
  static constexpr absl::Duration kRecordPause = absl::Seconds(1);
  // Least time between two changes that tell of iterations only.
  static constexpr absl::Duration kPublishInterval = absl::Milliseconds(100);
  // Of a worker's program: more does not fit what may wait to be sent to one.
  static constexpr size_t kProgramBytesMax = size_t{100} << 20;
  // Iterations that clients are told of, the last ones.
  static constexpr int kIterationsTold = 1000;

  // All outlive the run.
  struct Environment {
    ProgramGateway& gateway;
    WorkerRegistry& workers;
    TaskQueue& queue;         // runs one task after the other
    PlanningQueue& planners;  // for what takes long
    const Clock& clock;
    JobSink<v1::PipelineRun>& sink;
    JobNumbers& numbers;
    uint64_t epoch = 0;
    std::string (*new_token)() = nullptr;  // 16 bytes that cannot be guessed
  };

  // `on_finished` is called last, when the sink has recorded the end.
  RunningPipeline(const Environment& environment, PipelineRequest request,
                  absl::AnyInvocable<void()> on_finished);

  void Begin();
  void Stop(bool now, const std::string& reason);
  // Stops what runs, and leaves the rest to the next controller of the store.
  void Leave(const std::string& reason);
  void WorkerIsLost(const std::string& worker, const absl::Status& why);

 private:
  using Machine = PipelineMachine;
  struct Program {
    std::shared_ptr<const std::string> bytes;
    std::vector<int32_t> transfers;
  };
  using Programs = absl::StatusOr<std::vector<Program>>;
  // As PipelineProcesses.
  using Processes = absl::btree_map<DeviceId, std::pair<std::string, uint64_t>>;
  using DevicesOfWorkers = absl::btree_map<std::string, std::vector<DeviceId>>;

  // Of another controller's run.
  void TakeUp();
  // Preparing, in steps; each goes through a planner's thread where it may take long.
  void Plan();
  void OnPlanned(PipelineRequest::Planned planned);
  void CommitIntent();
  void OnIntent(const absl::Status& status);
  void LookForWorkers();
  absl::Status FindWorkers();
  static Programs MakeBytes(const RunnablePlan& planned, const DevicesOfWorkers& devices);
  void MakePrograms(DevicesOfWorkers devices);
  void OnPrograms(DevicesOfWorkers devices, Programs programs);
  void TellWorkersReady();
  // At a start: which processes compute now, and which ranks have lost their state with others.
  void FindProcesses();

  // Until it is on record, or another controller has taken over.
  void Record();
  void OnRecorded(const absl::Status& status);

  // What calls of the present generation say.
  void Call(const WorkerRecord& worker, const v1::RunProgramRequest::Start& start);
  void OnMessage(const std::string& worker, v1::RunProgramResponse response);
  void OnReport(const std::string& worker, v1::RunProgramResponse::IterationReport report);
  void OnCallEnded(const std::string& worker, const absl::Status& status);

  void Feed(const Machine::Event& event);
  void Do(const Machine::StartPrograms& action);
  void Do(const Machine::RecordProgress& action);
  void Do(const Machine::BeginIteration& action);
  void Do(const Machine::StopPrograms& action);
  void Do(const Machine::CancelCall& action);
  void Do(const Machine::AwaitWorkers& action);
  void Do(const Machine::StartTimer& action);
  void Do(const Machine::EndIteration& action);
  void Do(const Machine::Publish& action);
  void Do(const Machine::Finish& action);

  v1::RunProgramRequest::Start StartOfGeneration() const;
  absl::Duration TimeFor(Machine::Wait wait) const;
  // At once, or when it is time for it.
  void PublishSoon();
  void Publish();
  // As clients see it after another change.
  std::shared_ptr<const v1::PipelineRun> Shown();

  const Environment environment_;
  PipelineRequest request_;
  absl::AnyInvocable<void()> on_finished_;
  // Read by the planner.
  const std::shared_ptr<std::atomic<bool>> given_up_ = std::make_shared<std::atomic<bool>>(false);

  Machine machine_;
  bool is_recorded_ = false;  // its intent
  bool is_wanted_ = true;     // no client has stopped it
  bool leaves_ = false;
  stored::v1::PipelineProgress progress_;  // on record, or on its way there
  v1::PipelineRun run_;                    // but for what is derived when it is published
  std::shared_ptr<const RunnablePlan> planned_;
  std::vector<WorkerRecord> workers_;               // that own devices of the ranks, by name
  DevicesOfWorkers devices_;                        // for which the programs were made
  absl::btree_map<std::string, Program> programs_;  // by worker
  int32_t generation_ = 0;
  Processes starting_;  // of the start that runs; empty once all have accepted
  Processes computed_;  // of the last iteration that was begun
  // Those that have not ended.
  absl::btree_map<std::string, std::unique_ptr<WorkerCall<v1::RunProgramRequest>>> calls_;
  absl::btree_map<std::string, WorkerReport> reports_;  // of the iteration that runs
  std::vector<WorkerReport> completed_;                 // of one that is complete, not on record
  std::vector<WorkerReport> complete_;                  // of the last complete one
  std::optional<int64_t> complete_iteration_;           // its number
  std::array<TaskQueue::Timer, 4> timers_;              // by what is waited for
  TaskQueue::Timer look_timer_;
  TaskQueue::Timer publish_timer_;
  absl::Duration published_ = -absl::InfiniteDuration();  // when last
  PipelineRunState published_state_ = PipelineRunState::kPreparing;
  bool finished_ = false;
};

}  // namespace crossmesh
