#include "worker/control_services.h"

#include "common/base/status_macros.h"
#include "common/daemon/daemon_health.h"
#include "common/event_loop/event_loop.h"
#include "common/metrics/prometheus/exporter.h"
#include "common/metrics/rpc_metrics.h"
#include "common/metrics/worker_metrics.h"
#include "common/rpc/server.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/pipeline/program_host.h"
#include "worker/probe/probe_table.h"
#include "worker/service/communicator_service.h"
#include "worker/service/control_streams.h"
#include "worker/service/probe_service.h"
#include "worker/tasks/task_table.h"
#include "worker/worker_devices.h"

#include <functional>
#include <utility>

#include <absl/time/time.h>

namespace crossmesh {
namespace {

// For programs that were given up to leave: longer than the default stall limit.
constexpr absl::Duration kProgramGrace = absl::Seconds(10);
constexpr absl::Duration kCallGrace = absl::Seconds(1);

}  // namespace

ControlServices::ControlServices(Options options)
    : options_(std::move(options)), metrics_(std::make_unique<RpcMetrics>(kWorkerMethods)) {}

ControlServices::~ControlServices() = default;

absl::Status ControlServices::ServeMetrics(const WorkerMetrics& worker) {
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(exporter_, MetricsExporter::Start({.address = options_.metrics_listen,
                                                      .role = "worker",
                                                      .insecure = options_.insecure}));
  exporter_->Serve(worker.metrics());
  exporter_->Serve(metrics_->metrics());
  if (options_.health == nullptr) return absl::OkStatus();
  exporter_->Serve(options_.health->metrics.metrics());
  exporter_->ServeProbes(options_.health->probes.All());
  return absl::OkStatus();
}

void ControlServices::BeWatched(const Loops& loops) {
  if (options_.health == nullptr) return;
  for (const auto& [what, loop] :
       {std::pair("control loop", loops.control), std::pair("data loop", loops.data)}) {
    options_.health->watchdog.Watch(what, [watched = loop](std::function<void()> answered) {
      watched->Post([answered = std::move(answered)] { answered(); });
    });
  }
  options_.health->probes.SetServing();
}

void ControlServices::SayStopping() {
  if (options_.health != nullptr) options_.health->probes.SetNotServing("stopping");
}

absl::Status ControlServices::Open(const Ports& ports) {
  execution_service_ = MakeExecutionService(ports.control, ports.tasks);
  programs_ = std::make_unique<ProgramHost>(
      ProgramHost::Options{.worker = options_.worker,
                           .incarnation = options_.incarnation,
                           .devices = options_.devices,
                           .computes = options_.computes_pipelines},
      ProgramHost::Ports{
          .control = ports.control,
          .data = ports.data,
          .replayer = ports.replayer,
          .clock = ports.clock,
          .memory = ports.devices.memory(),
          .obey = [&tasks = ports.tasks](uint64_t epoch) { return tasks.Obey(epoch); },
          .make_arena =
              [&devices = ports.devices](const DeviceId& device, ByteCount bytes) {
                return devices.MakeArena({.name = "pipeline", .device = device}, bytes);
              }});
  pipeline_service_ = MakePipelineExecutionService(*programs_);
  ASSIGN_OR_RETURN(probes_, ProbeTable::Create({.interfaces = options_.interfaces}, ports.clock));
  probe_service_ = std::make_unique<ProbeService>(*probes_);
  communicator_service_ = std::make_unique<CommunicatorService>(ports.data, ports.devices.gpus());
  ASSIGN_OR_RETURN(
      server_, RpcServer::Start({.addresses = {options_.listen},
                                 .insecure = options_.insecure,
                                 .services = {execution_service_.get(), pipeline_service_.get(),
                                              probe_service_.get(), communicator_service_.get()},
                                 .metrics = metrics_.get()}));
  return absl::OkStatus();
}

void ControlServices::StopPrograms() { programs_->Stop(kProgramGrace); }

void ControlServices::Stop() {
  if (options_.health != nullptr) options_.health->watchdog.Forget();
  // First what would keep calls open until their own time is over.
  probes_->Stop();
  communicator_service_->Stop();
  server_->Shutdown(kCallGrace);
}

const std::string& ControlServices::address() const { return server_->addresses().front(); }

std::string ControlServices::metrics_address() const {
  return exporter_ == nullptr ? "" : exporter_->address();
}

absl::StatusOr<std::unique_ptr<PipelineLoop>> ControlServices::WaitForPipeline(
    absl::Duration timeout) {
  return programs_->WaitForLoop(timeout);
}

}  // namespace crossmesh
