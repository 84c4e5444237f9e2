#include "controller/controller.h"

#include "common/base/allocator.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/communicators/communicator_key.h"
#include "common/metrics/controller_metrics.h"
#include "common/metrics/label_set.h"
#include "controller/catalog/job_records.h"
#include "controller/communicators/communicator_registry.h"
#include "controller/controller_server.h"
#include "controller/controller_upkeep.h"
#include "controller/dispatch/communicator_leases.h"
#include "controller/dispatch/grpc/grpc_communicator_gateway.h"
#include "controller/dispatch/grpc/grpc_probe_gateway.h"
#include "controller/dispatch/grpc/grpc_worker_gateway.h"
#include "controller/dispatch/grpc/worker_channels.h"
#include "controller/dispatch/job_numbers.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_pipeline.h"
#include "controller/dispatch/running_table.h"
#include "controller/dispatch/start_gate.h"
#include "controller/dispatch/thread_planning_queue.h"
#include "controller/dispatch/thread_task_queue.h"
#include "controller/membership/worker_registry.h"
#include "controller/service/job_registry.h"
#include "controller/service/random_token.h"
#include "controller/store/epoch.h"

#include <array>
#include <thread>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

// Of the memory of a GPU. NCCL takes some hundred MiB for a communicator, more with many peers.
constexpr CommunicatorRegistry::Options kCommunicatorBounds = {
    .gpu_bytes_max = int64_t{4} << 30, .expected_bytes = int64_t{512} << 20};
// Of what is remembered of runs of pipelines that have ended: their measurements are large.
constexpr size_t kPipelineRunBytesMax = size_t{64} << 20;
// That workers of the controller before have to come back: as a silent one until it is lost.
constexpr absl::Duration kReturnMax = absl::Seconds(10);
// For calls that have been answered to reach their clients.
constexpr absl::Duration kServerGrace = absl::Seconds(1);

// Brings news of workers to what depends on them.
class MembershipNews final : public MembershipListener {
 public:
  // Before the first worker can register.
  struct Listeners {
    RunningTable<RunningOperation>* operations = nullptr;
    RunningTable<RunningPipeline>* pipelines = nullptr;
    CommunicatorLeases* communicators = nullptr;
    WorkerChannels* channels = nullptr;
    ControllerMetrics* metrics = nullptr;
  };
  void TellTo(const Listeners& listeners) { to_ = listeners; }

  void OnWorkerReady(const WorkerRecord& worker) override {
    to_.channels->Connect(worker.execution_address);
  }
  void OnWorkerLost(const WorkerRecord& worker, const absl::Status& why) override {
    LogWarning("worker_lost", {{"worker_id", worker.name}, {"reason", why.message()}});
    to_.metrics->WorkerLost(worker.silent ? WorkerLossReason::kHeartbeatTimeout
                                          : WorkerLossReason::kStreamClosed);
    to_.operations->WithAll([name = worker.name, why](RunningOperation& operation) {
      operation.WorkerIsLost(name, why);
    });
    to_.pipelines->WithAll(
        [name = worker.name, why](RunningPipeline& run) { run.WorkerIsLost(name, why); });
    to_.channels->Forget(worker.execution_address);
  }
  void OnGpuProcessLost(const RankName& process, const absl::Status& why) override {
    LogWarning("gpu_process_lost", {{"gpu", process.gpu}, {"reason", why.message()}});
    to_.communicators->OnProcessLost(process, why);
  }

 private:
  Listeners to_;
};

// Counts the operations in each state that is not the last. Thread-safe.
class OperationStates {
 public:
  explicit OperationStates(ControllerMetrics& metrics) : metrics_(metrics) {}

  // As JobRegistry::Options::on_state.
  void Move(int from, int to) {
    constexpr std::pair<v1::OperationState, RunningState> kLabels[] = {
        {v1::OPERATION_STATE_PREPARING, RunningState::kPreparing},
        {v1::OPERATION_STATE_RUNNING, RunningState::kRunning},
        {v1::OPERATION_STATE_VERIFYING, RunningState::kVerifying}};
    std::array<int64_t, v1::OperationState_ARRAYSIZE> counts;
    {
      const MutexLock lock(mutex_);
      --counts_[from];
      ++counts_[to];
      counts = counts_;
    }
    for (const auto& [state, label] : kLabels)
      metrics_.SetOperationsInProgress(label, counts[state]);
  }

 private:
  ControllerMetrics& metrics_;
  Mutex mutex_;
  std::array<int64_t, v1::OperationState_ARRAYSIZE> counts_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace

// In the order in which they are made, which is that of what uses what; they go in the reverse.
struct Controller::Parts {
  explicit Parts(const Options& controller_options);

  // Work in progress ends before what it works on goes.
  ~Parts();

  // Runs of pipelines are told to stop, or left to the next controller where there may be one.
  void EndPipelines();
  // Looks for silent workers, and after metrics and memory, now and from now on.
  void Sweep();

  const RealClock clock;
  ControllerMetrics metrics;
  const uint64_t epoch;

  const Options options;
  const std::shared_ptr<MetadataStore> kept;
  const std::unique_ptr<MetadataStore> store;  // that one, measured
  JobRecords operation_records;
  JobRecords pipeline_job_records;
  JobNumbers numbers;
  MembershipNews news;
  WorkerRegistry workers;
  WorkerChannels channels;
  GrpcTaskGateway tasks;
  GrpcProgramGateway programs;
  GrpcProbeGateway probes;
  GrpcCommunicatorGateway communicator_gateway;

  ThreadTaskQueue queue;         // all operations and pipelines, sessions' timers, watchers
  ThreadPlanningQueue planners;  // what takes long
  OperationStates operation_states;
  JobRegistry<v1::Operation> operation_registry;
  CommunicatorLeases communicators;
  StartGate gate{queue};
  RunningTable<RunningOperation> operations;
  JobRegistry<v1::PipelineRun> pipeline_job_registry;
  RunningTable<RunningPipeline> pipelines;
  FreedMemory freed_memory;  // confined to the queue
  std::unique_ptr<ControllerServer> server;

  Mutex mutex;
  bool shut_down ABSL_GUARDED_BY(mutex) = false;
};

Controller::Parts::Parts(const Options& controller_options)
    : epoch(controller_options.epoch.value_or(EpochAt(clock.Now()))),
      options(controller_options),
      kept(StoreOf(options)),
      store(Measured(*kept, clock, metrics)),
      operation_records(
          *store, epoch, clock,
          {.noun = "operation", .id_prefix = "op-", .request_ids_for = options.request_ids_for}),
      pipeline_job_records(*store, epoch, clock,
                           {.noun = "run",
                            .id_prefix = "pr-",
                            .finished_bytes_max = kPipelineRunBytesMax,
                            .request_ids_for = options.request_ids_for}),
      numbers(epoch),
      workers({.lost_after = options.lost_after}, clock, news),
      channels(options.insecure),
      tasks(channels),
      programs(channels),
      probes(channels),
      communicator_gateway(channels),
      queue({.name = "operations"}, clock),
      planners(ThreadPlanningQueue::ThreadsFor(std::thread::hardware_concurrency()), clock,
               metrics),
      operation_states(metrics),
      operation_registry(
          {.records = operation_records,
           .numbers = numbers,
           .queue = queue,
           .clock = clock,
           .on_state = [this](int from, int to) { operation_states.Move(from, to); }}),
      communicators({.gateway = communicator_gateway,
                     .workers = workers,
                     .queue = queue,
                     .clock = clock,
                     .metrics = metrics,
                     .bounds = kCommunicatorBounds}),
      operations({.gateway = tasks,
                  .communicators = communicators,
                  .workers = workers,
                  .queue = queue,
                  .planners = planners,
                  .gate = gate,
                  .clock = clock,
                  .sink = operation_registry,
                  .metrics = metrics,
                  .epoch = epoch}),
      pipeline_job_registry(
          {.records = pipeline_job_records, .numbers = numbers, .queue = queue, .clock = clock}),
      pipelines({.gateway = programs,
                 .workers = workers,
                 .queue = queue,
                 .planners = planners,
                 .clock = clock,
                 .sink = pipeline_job_registry,
                 .numbers = numbers,
                 .epoch = epoch,
                 .new_token = &NewToken}) {
  news.TellTo({.operations = &operations,
               .pipelines = &pipelines,
               .communicators = &communicators,
               .channels = &channels,
               .metrics = &metrics});
  metrics.SetEpoch(epoch);
  if (store->revision() > 0) workers.AwaitReturns(kReturnMax);
  BeWatched(options, queue);
}

Controller::Parts::~Parts() {
  BeWatchedNoMore(options);
  planners.Stop();
  queue.Stop();
  tasks.Stop();
  programs.Stop();
  // What is on its way into the store, which outlives this, answers here: before the last commit.
  store->Commit({.epoch = epoch}).status().IgnoreError();
}

void Controller::Parts::EndPipelines() {
  const std::string reason = "the controller is stopping";
  pipelines.WithAll([reason, lasting = options.store != nullptr](RunningPipeline& run) {
    lasting ? run.Leave(reason) : run.Stop(/*now=*/true, reason);
  });
}

void Controller::Parts::Sweep() {
  workers.Sweep();
  CountJobs(operation_records, pipeline_job_records, metrics);
  UpdateMetrics(workers, *store, options.upkeep.get(), metrics);
  freed_memory.GiveBack(clock.Monotonic());
  queue.PostAfter(WorkerRegistry::kHeartbeatInterval, [this] { Sweep(); });
}

absl::StatusOr<std::unique_ptr<Controller>> Controller::Create(const Options& options) {
  auto parts = std::make_unique<Parts>(options);
  ASSIGN_OR_RETURN(
      parts->server,
      ControllerServer::Start(options, {.store = *parts->store,
                                        .clock = parts->clock,
                                        .metrics = parts->metrics,
                                        .epoch = parts->epoch,
                                        .workers = parts->workers,
                                        .probes = parts->probes,
                                        .communicators = parts->communicators,
                                        .communicator_gateway = parts->communicator_gateway,
                                        .queue = parts->queue,
                                        .planners = parts->planners,
                                        .operation_registry = parts->operation_registry,
                                        .operations = parts->operations,
                                        .pipeline_job_registry = parts->pipeline_job_registry,
                                        .pipelines = parts->pipelines}));
  parts->queue.Post([&parts = *parts] { parts.Sweep(); });
  SayServing(parts->options, true);
  return std::unique_ptr<Controller>(new Controller(std::move(parts)));
}

Controller::Controller(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Controller::~Controller() { Shutdown(absl::ZeroDuration()); }

const std::vector<std::string>& Controller::addresses() const {
  return parts_->server->addresses();
}
std::string Controller::metrics_address() const { return parts_->server->metrics_address(); }
uint64_t Controller::epoch() const { return parts_->epoch; }

void Controller::Shutdown(absl::Duration deadline) {
  {
    const MutexLock lock(parts_->mutex);
    if (std::exchange(parts_->shut_down, true)) return;
  }
  SayServing(parts_->options, false);
  parts_->server->SayNotServing();
  parts_->operation_registry.RefuseNew();
  parts_->pipeline_job_registry.RefuseNew();
  parts_->EndPipelines();
  const absl::Duration end = parts_->clock.Monotonic() + deadline;
  if (!parts_->operations.WaitUntilIdle(deadline)) {
    LogWarning("operations_left", {{"operations", parts_->operations.running()}});
  }
  if (!parts_->pipelines.WaitUntilIdle(end - parts_->clock.Monotonic())) {
    LogWarning("pipelines_left", {{"pipelines", parts_->pipelines.running()}});
  }
  const absl::Status leaving = absl::UnavailableError("the controller is stopping");
  parts_->operation_registry.DismissWatchers(leaving);
  parts_->pipeline_job_registry.DismissWatchers(leaving);
  parts_->server->CloseSessions(leaving);
  parts_->planners.Stop();
  // Measurements of the network wait for their probes, and the server for the measurements.
  parts_->probes.Stop();
  parts_->communicator_gateway.StopCalls();
  parts_->server->Shutdown(std::min(deadline, kServerGrace));
  // Calls to workers break only when nothing is left here that would take that for their loss.
  parts_->queue.Stop();
  parts_->tasks.Stop();
  parts_->programs.Stop();
}

}  // namespace crossmesh
