#include "controller/controller_server.h"

#include "common/base/memory_limit.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon_health.h"
#include "common/metrics/controller_metrics.h"
#include "common/metrics/prometheus/exporter.h"
#include "common/metrics/rpc_metrics.h"
#include "common/rpc/not_leader.h"
#include "common/rpc/server.h"
#include "controller/catalog/catalog.h"
#include "controller/requests/request_budget.h"
#include "controller/service/controller_service.h"
#include "controller/service/manifest_service.h"
#include "controller/service/mesh_service.h"
#include "controller/service/network_service.h"
#include "controller/service/operation_service.h"
#include "controller/service/pipeline_service.h"
#include "controller/service/reshard_planner.h"
#include "controller/service/reshard_service.h"
#include "controller/service/session_table.h"
#include "controller/service/worker_service.h"
#include "controller/store/store_upkeep.h"

#include <utility>

namespace crossmesh {

// In the order in which they are made, which is that of what uses what; they go in the reverse.
struct ControllerServer::Parts {
  Parts(const Controller::Options& options, const Environment& environment,
        std::unique_ptr<MetricsExporter> metrics_exporter);

  RequestBudget budget;
  RpcMetrics rpc_metrics;
  const std::unique_ptr<MetricsExporter> exporter;  // null: metrics are not served
  Catalog catalog;
  ReshardPlanner planner;
  SessionTable sessions;

  ControllerService controller_service;
  MeshService mesh_service;
  ManifestService manifest_service;
  NetworkService network_service;
  ReshardService reshard_service;
  OperationService operation_service;
  PipelineService pipeline_service;
  WorkerService worker_service;
  std::unique_ptr<RpcServer> server;
};

ControllerServer::Parts::Parts(const Controller::Options& options, const Environment& environment,
                               std::unique_ptr<MetricsExporter> metrics_exporter)
    : budget(options.request_bytes_max.value_or(RequestBudget::DefaultOf(MemoryLimit()))),
      rpc_metrics(kControllerMethods),
      exporter(std::move(metrics_exporter)),
      catalog(environment.store, environment.epoch),
      planner({.catalog = catalog,
               .workers = environment.workers,
               .clock = environment.clock,
               .metrics = environment.metrics},
              options.plan_bytes_max),
      sessions({.registry = environment.workers,
                .operations = environment.operations,
                .queue = environment.queue,
                .clock = environment.clock,
                .metrics = environment.metrics,
                .epoch = environment.epoch,
                .gate = {.per_second = options.registrations_per_second,
                         .burst = options.registrations_at_once}}),
      controller_service({.catalog = catalog,
                          .store = environment.store,
                          .clock = environment.clock,
                          .planners = environment.planners,
                          .epoch = environment.epoch,
                          .store_kind = options.store_kind,
                          .upkeep = options.upkeep.get(),
                          .metrics_address = exporter == nullptr ? "" : exporter->address()}),
      mesh_service(catalog, planner, environment.metrics),
      manifest_service(budget, catalog, planner, environment.metrics),
      network_service({.budget = budget,
                       .catalog = catalog,
                       .workers = environment.workers,
                       .operations = environment.operations,
                       .probes = environment.probes,
                       .communicators = environment.communicators,
                       .communicator_gateway = environment.communicator_gateway,
                       .queue = environment.queue,
                       .clock = environment.clock,
                       .epoch = environment.epoch}),
      reshard_service({.budget = budget,
                       .planner = planner,
                       .registry = environment.operation_registry,
                       .running = environment.operations,
                       .planners = environment.planners,
                       .metrics = environment.metrics}),
      operation_service(environment.operation_registry, environment.operations),
      pipeline_service({.budget = budget,
                        .catalog = catalog,
                        .registry = environment.pipeline_job_registry,
                        .running = environment.pipelines,
                        .planners = environment.planners,
                        .clock = environment.clock}),
      worker_service(environment.workers, sessions, environment.operation_registry) {
  if (exporter == nullptr) return;
  exporter->Serve(environment.metrics.metrics());
  exporter->Serve(rpc_metrics.metrics());
  if (options.health == nullptr) return;
  exporter->Serve(options.health->metrics.metrics());
  exporter->ServeProbes(options.health->probes.All());
}

absl::StatusOr<std::unique_ptr<ControllerServer>> ControllerServer::Start(
    const Controller::Options& options, const Environment& environment) {
  std::unique_ptr<MetricsExporter> exporter;
  if (!options.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(exporter, MetricsExporter::Start({.address = options.metrics_listen,
                                                       .role = "controller",
                                                       .insecure = options.insecure}));
  }
  auto parts = std::make_unique<Parts>(options, environment, std::move(exporter));
  RETURN_IF_ERROR(parts->catalog.Load());
  RETURN_IF_ERROR(parts->reshard_service.TakeUp());
  RETURN_IF_ERROR(parts->pipeline_service.TakeUp());
  // Before the server starts: no client may plan for a network that is not the operator's.
  if (options.topology.has_value()) {
    RETURN_IF_ERROR(parts->catalog.network
                        .Set({.topology = *options.topology,
                              .source = NetworkSource::kFile,
                              .time = environment.clock.Now()})
                        .status());
  }
  ASSIGN_OR_RETURN(
      parts->server,
      RpcServer::Start(
          {.addresses = options.listen,
           .insecure = options.insecure,
           .services = {&parts->controller_service, &parts->mesh_service, &parts->manifest_service,
                        &parts->network_service, &parts->reshard_service, &parts->operation_service,
                        &parts->pipeline_service, &parts->worker_service},
           .may_answer = options.may_answer,
           .metrics = &parts->rpc_metrics,
           .message_bytes_max = RpcServer::kBulkMessageBytesMax}));
  parts->controller_service.SetAddresses(parts->server->addresses());
  parts->server->SetServing(kLeaderService, true);
  return std::unique_ptr<ControllerServer>(new ControllerServer(std::move(parts)));
}

ControllerServer::ControllerServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

ControllerServer::~ControllerServer() = default;

const std::vector<std::string>& ControllerServer::addresses() const {
  return parts_->server->addresses();
}
std::string ControllerServer::metrics_address() const {
  return parts_->exporter == nullptr ? "" : parts_->exporter->address();
}

void ControllerServer::SayNotServing() {
  parts_->server->SetServing("", false);
  parts_->server->SetServing(kLeaderService, false);
}
void ControllerServer::CloseSessions(const absl::Status& why) { parts_->sessions.Close(why); }
void ControllerServer::Shutdown(absl::Duration grace) { parts_->server->Shutdown(grace); }

}  // namespace crossmesh
