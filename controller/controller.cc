#include "controller/controller.h"

#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/communicators/communicator_key.h"
#include "common/metrics/label_set.h"
#include "common/metrics/prometheus/exporter.h"
#include "common/metrics/prometheus/recorders.h"
#include "common/rpc/server.h"
#include "controller/catalog/catalog.h"
#include "controller/catalog/operation_records.h"
#include "controller/communicators/communicator_registry.h"
#include "controller/dispatch/communicator_leases.h"
#include "controller/dispatch/grpc/grpc_communicator_gateway.h"
#include "controller/dispatch/grpc/grpc_pipeline_gateway.h"
#include "controller/dispatch/grpc/grpc_probe_gateway.h"
#include "controller/dispatch/grpc/grpc_worker_gateway.h"
#include "controller/dispatch/operation_runner.h"
#include "controller/dispatch/pipeline_runner.h"
#include "controller/dispatch/thread_task_queue.h"
#include "controller/membership/worker_registry.h"
#include "controller/service/manifest_service.h"
#include "controller/service/mesh_service.h"
#include "controller/service/network_service.h"
#include "controller/service/operation_registry.h"
#include "controller/service/operation_service.h"
#include "controller/service/pipeline_run_registry.h"
#include "controller/service/pipeline_service.h"
#include "controller/service/random_token.h"
#include "controller/service/reshard_planner.h"
#include "controller/service/reshard_service.h"
#include "controller/service/session_table.h"
#include "controller/service/worker_service.h"
#include "controller/store/memory_store.h"

#include <array>
#include <utility>

#include <absl/strings/match.h>

namespace crossmesh {
namespace {

constexpr size_t kPlansWaitingMax = 256;
// Of the memory of a GPU. NCCL takes some hundred MiB for a communicator, more with many peers.
constexpr CommunicatorRegistry::Options kCommunicatorBounds = {
    .gpu_bytes_max = int64_t{4} << 30, .expected_bytes = int64_t{512} << 20};
// For calls that have been answered to reach their clients.
constexpr absl::Duration kServerGrace = absl::Seconds(1);

uint64_t EpochAt(absl::Time now) {
  return static_cast<uint64_t>(absl::ToInt64Microseconds(
      now - absl::FromCivil(absl::CivilDay(2020, 1, 1), absl::UTCTimeZone())));
}

// Brings news of workers to those who care.
class MembershipNews final : public MembershipListener {
 public:
  // Before the first worker can register.
  struct Listeners {
    OperationRunner* runner = nullptr;
    PipelineRunner* pipelines = nullptr;
    CommunicatorLeases* communicators = nullptr;
    GrpcWorkerGateway* gateway = nullptr;
    GrpcPipelineGateway* pipeline_gateway = nullptr;
    ControllerMetrics* metrics = nullptr;
  };
  void TellTo(const Listeners& listeners) { to_ = listeners; }

  void OnWorkerReady(const WorkerRecord& worker) override {
    to_.gateway->Connect(worker.execution_address);
    to_.pipeline_gateway->Forget(worker.execution_address);
  }
  void OnWorkerLost(const WorkerRecord& worker, const absl::Status& why) override {
    LogWarning("worker_lost", {{"worker_id", worker.name}, {"reason", why.message()}});
    to_.metrics->WorkerLost(absl::StrContains(why.message(), "heartbeat")
                                ? WorkerLossReason::kHeartbeatTimeout
                                : WorkerLossReason::kStreamClosed);
    to_.runner->OnWorkerLost(worker.name, why);
    to_.pipelines->OnWorkerLost(worker.name, why);
    to_.gateway->Forget(worker.execution_address);
    to_.pipeline_gateway->Forget(worker.execution_address);
  }
  void OnGpuProcessLost(const RankName& process, const absl::Status& why) override {
    LogWarning("gpu_process_lost", {{"gpu", process.gpu}, {"reason", why.message()}});
    to_.communicators->OnProcessLost(process, why);
  }

 private:
  Listeners to_;
};

void CountWorkers(const WorkerRegistry& registry, ControllerMetrics& metrics) {
  constexpr std::pair<WorkerState, WorkerStateLabel> kLabels[] = {
      {WorkerState::kReady, WorkerStateLabel::kReady},
      {WorkerState::kSuspect, WorkerStateLabel::kSuspect},
      {WorkerState::kDraining, WorkerStateLabel::kDraining},
      {WorkerState::kLost, WorkerStateLabel::kLost}};
  std::array<int64_t, std::size(kLabels)> counts = {};
  for (const WorkerRecord& record : registry.List()) ++counts[static_cast<size_t>(record.state)];
  for (const auto& [state, label] : kLabels) {
    metrics.SetWorkers(label, counts[static_cast<size_t>(state)]);
  }
}

}  // namespace

// In the order in which they are made, which is that of what uses what; they go in the reverse.
struct Controller::Parts {
  Parts(const Options& options, std::unique_ptr<MetricsExporter> metrics_exporter);

  // Looks for silent workers, now and from now on.
  void Sweep();

  const RealClock clock;
  const std::unique_ptr<MetricsExporter> exporter;  // null: no metrics
  const std::unique_ptr<ControllerMetrics> metrics;
  const std::unique_ptr<RpcMetrics> rpc_metrics;
  const uint64_t epoch;
  const absl::Duration heartbeat_interval;

  MemoryStore store;
  Catalog catalog;
  OperationRecords records;
  MembershipNews news;
  WorkerRegistry registry;
  GrpcWorkerGateway gateway;
  GrpcPipelineGateway pipeline_gateway;
  GrpcProbeGateway probes;
  GrpcCommunicatorGateway communicator_gateway;

  ThreadTaskQueue queue;     // all operations and pipelines, sessions' timers, watchers
  ThreadTaskQueue planners;  // what takes long
  OperationRegistry registry;
  CommunicatorLeases communicators;
  OperationRunner runner;
  PipelineRunRegistry pipeline_registry;
  PipelineRunner pipelines;
  ReshardPlanner planner;
  SessionTable sessions;

  MeshService mesh_service;
  ManifestService manifest_service;
  NetworkService network_service;
  ReshardService reshard_service;
  OperationService operation_service;
  PipelineService pipeline_service;
  WorkerService worker_service;
  std::unique_ptr<RpcServer> server;

  Mutex mutex;
  bool shut_down ABSL_GUARDED_BY(mutex) = false;
};

Controller::Parts::Parts(const Options& options, std::unique_ptr<MetricsExporter> metrics_exporter)
    : exporter(std::move(metrics_exporter)),
      metrics(exporter == nullptr
                  ? std::unique_ptr<ControllerMetrics>(std::make_unique<NullControllerMetrics>())
                  : MakeControllerMetrics(exporter->registry())),
      rpc_metrics(exporter == nullptr
                      ? std::unique_ptr<RpcMetrics>(std::make_unique<NullRpcMetrics>())
                      : MakeRpcMetrics(exporter->registry(), kControllerMethods)),
      epoch(EpochAt(clock.Now())),
      heartbeat_interval(options.heartbeat_interval),
      catalog(store, epoch),
      records(store, epoch, clock),
      registry({.heartbeat_interval = options.heartbeat_interval, .lost_after = options.lost_after},
               clock, news),
      gateway(options.insecure),
      pipeline_gateway(options.insecure),
      probes(options.insecure),
      communicator_gateway(options.insecure),
      queue({.name = "operations"}, clock),
      planners(
          {.name = "planner", .threads = options.planner_threads, .tasks_max = kPlansWaitingMax},
          clock),
      registry({.records = records,
                .queue = queue,
                .clock = clock,
                .metrics = *metrics,
                .epoch = epoch}),
      communicators({.gateway = communicator_gateway,
                     .workers = registry,
                     .queue = queue,
                     .clock = clock,
                     .metrics = *metrics,
                     .bounds = kCommunicatorBounds}),
      runner({.gateway = gateway,
              .communicators = communicators,
              .workers = registry,
              .queue = queue,
              .planners = planners,
              .clock = clock,
              .sink = registry,
              .epoch = epoch}),
      pipeline_registry({.queue = queue, .clock = clock, .epoch = epoch}),
      pipelines({.gateway = pipeline_gateway,
                 .workers = registry,
                 .queue = queue,
                 .planners = planners,
                 .clock = clock,
                 .sink = pipeline_registry,
                 .epoch = epoch,
                 .random_word = &RandomTokenWord}),
      planner({}, catalog, clock, *metrics),
      sessions({.registry = registry,
                .runner = runner,
                .queue = queue,
                .clock = clock,
                .metrics = *metrics,
                .epoch = epoch,
                .heartbeat_interval = options.heartbeat_interval}),
      mesh_service(catalog, *metrics),
      manifest_service(catalog, *metrics),
      network_service({.catalog = catalog,
                       .workers = registry,
                       .runner = runner,
                       .probes = probes,
                       .clock = clock}),
      reshard_service({.planner = planner,
                       .registry = registry,
                       .runner = runner,
                       .planners = planners,
                       .metrics = *metrics}),
      operation_service(registry, runner),
      pipeline_service({.catalog = catalog,
                        .registry = pipeline_registry,
                        .runner = pipelines,
                        .planners = planners,
                        .clock = clock}),
      worker_service(registry, sessions) {
  news.TellTo({.runner = &runner,
               .pipelines = &pipelines,
               .communicators = &communicators,
               .gateway = &gateway,
               .pipeline_gateway = &pipeline_gateway,
               .metrics = metrics.get()});
  metrics->SetEpoch(epoch);
}

void Controller::Parts::Sweep() {
  registry.Sweep();
  CountWorkers(registry, *metrics);
  queue.PostAfter(heartbeat_interval, [this] { Sweep(); });
}

absl::StatusOr<std::unique_ptr<Controller>> Controller::Create(const Options& options) {
  std::unique_ptr<MetricsExporter> exporter;
  if (!options.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(exporter, MetricsExporter::Start({.address = options.metrics_listen,
                                                       .role = "controller",
                                                       .insecure = options.insecure}));
  }
  auto parts = std::make_unique<Parts>(options, std::move(exporter));
  if (options.topology.has_value()) {
    RETURN_IF_ERROR(parts->catalog.network
                        .Set({.topology = *options.topology,
                              .source = NetworkSource::kFile,
                              .time = parts->clock.Now()})
                        .status());
  }
  ASSIGN_OR_RETURN(parts->server,
                   RpcServer::Start({.addresses = options.listen,
                                     .insecure = options.insecure,
                                     .services = {&parts->mesh_service, &parts->manifest_service,
                                                  &parts->network_service, &parts->reshard_service,
                                                  &parts->operation_service,
                                                  &parts->pipeline_service, &parts->worker_service},
                                     .metrics = parts->rpc_metrics.get(),
                                     .message_bytes_max = RpcServer::kBulkMessageBytesMax}));
  parts->queue.Post([&parts = *parts] { parts.Sweep(); });
  return std::unique_ptr<Controller>(new Controller(std::move(parts)));
}

Controller::Controller(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Controller::~Controller() { Shutdown(absl::ZeroDuration()); }

const std::vector<std::string>& Controller::addresses() const {
  return parts_->server->addresses();
}
std::string Controller::metrics_address() const {
  return parts_->exporter == nullptr ? "" : parts_->exporter->address();
}
uint64_t Controller::epoch() const { return parts_->epoch; }

void Controller::Shutdown(absl::Duration deadline) {
  {
    const MutexLock lock(parts_->mutex);
    if (std::exchange(parts_->shut_down, true)) return;
  }
  parts_->server->SetServing("", false);
  parts_->reshard_service.RefuseOperations();
  parts_->pipeline_service.RefuseRuns();
  parts_->pipelines.StopAll("the controller is stopping");
  const absl::Duration end = parts_->clock.Monotonic() + deadline;
  if (!parts_->runner.WaitUntilIdle(deadline)) {
    LogWarning("operations_left", {{"operations", parts_->runner.running()}});
  }
  if (!parts_->pipelines.WaitUntilIdle(end - parts_->clock.Monotonic())) {
    LogWarning("pipelines_left", {{"pipelines", parts_->pipelines.running()}});
  }
  const absl::Status leaving = absl::UnavailableError("the controller is stopping");
  parts_->registry.DismissWatchers(leaving);
  parts_->pipeline_registry.DismissWatchers(leaving);
  parts_->sessions.Close(leaving);
  parts_->planners.Stop();
  parts_->probes.Stop();
  parts_->communicator_gateway.StopCalls();
  parts_->server->Shutdown(std::min(deadline, kServerGrace));
  parts_->queue.Stop();
  parts_->gateway.Stop();
  parts_->pipeline_gateway.Stop();
}

}  // namespace crossmesh
