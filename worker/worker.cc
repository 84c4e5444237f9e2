#include "worker/worker.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/mesh/mesh.h"
#include "common/metrics/worker_metrics.h"
#include "worker/control_services.h"
#include "worker/controller_session.h"
#include "worker/data_plane.h"
#include "worker/gpu/devices/gpu_devices.h"
#include "worker/worker_devices.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status CheckOptions(const WorkerOptions& options) {
  if (!IsHostName(options.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker: expected a name of [a-z0-9._-]{1,63}, found \"", options.name, "\""));
  }
  if (options.devices.empty() && options.gpus.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", options.name, ": expected at least one device, found none"));
  }
  for (const DeviceId& device : options.devices) RETURN_IF_ERROR(Validate(device));
  for (const GpuName& gpu : options.gpus) {
    if (std::ranges::find(options.devices, gpu.device) == options.devices.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("device ", ToString(gpu.device),
                                                   ": expected host memory or GPU ", gpu.gpu,
                                                   ", found both"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(WorkerOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  options.data = AllowedDataTransport(options.name, std::move(options.data));
  std::unique_ptr<Worker> worker(new Worker(std::move(options)));
  RETURN_IF_ERROR(worker->Open());
  return worker;
}

Worker::Worker(WorkerOptions options)
    : options_(std::move(options)),
      incarnation_(absl::ToUnixMicros(clock_.Now())),
      metrics_(std::make_unique<WorkerMetrics>()) {}

Worker::~Worker() {
  Stop(absl::ZeroDuration());
  StopLoops();  // of one that could not be opened
  // Arenas may outlive the worker, and have no transport to be taken back from then.
  if (devices_ != nullptr) devices_->StopLending();
}

absl::Status Worker::Open() {
  RETURN_IF_ERROR(OpenDataPlane());
  services_ = std::make_unique<ControlServices>(
      ControlServices::Options{.worker = options_.name,
                               .incarnation = incarnation_,
                               .devices = options_.devices,
                               .computes_pipelines = options_.computes_pipelines,
                               .interfaces = options_.data.interfaces,
                               .listen = options_.listen,
                               .metrics_listen = options_.metrics_listen,
                               .health = options_.health,
                               .insecure = options_.insecure});
  RETURN_IF_ERROR(services_->ServeMetrics(*metrics_));
  RETURN_IF_ERROR(OpenTasks());
  RETURN_IF_ERROR(OpenServices());
  started_ = true;
  memory_->Start();
  control_->Start();
  session_->Start();
  // Controllers make communicators of processes, and must not wait for those that are gone.
  data_->Post([this] {
    devices_->gpus().SetOnChange(
        [this] { control_->Post([this] { session_->HurryHeartbeat(); }); });
  });
  services_->BeWatched({.control = control_.get(), .data = data_.get()});
  LogInfo("worker_started", {{"worker_id", options_.name},
                             {"devices", DevicesToString(devices())},
                             {"execution_address", execution_address()},
                             {"metrics_address", metrics_address()}});
  return absl::OkStatus();
}

absl::Status Worker::OpenDataPlane() {
  ASSIGN_OR_RETURN(data_, EventLoop::Create(clock_, {.name = "data"}));
  // It has nothing to do that waits for an answer within microseconds.
  ASSIGN_OR_RETURN(control_,
                   EventLoop::Create(clock_, {.name = "control", .spin = absl::ZeroDuration()}));
  ASSIGN_OR_RETURN(memory_,
                   EventLoop::Create(clock_, {.name = "memory", .spin = absl::ZeroDuration()}));
  ASSIGN_OR_RETURN(
      data_plane_,
      DataPlane::Create(
          {.control = *control_, .data = *data_, .clock = clock_, .metrics = *metrics_},
          options_.data, options_.executor));
  return absl::OkStatus();
}

// From here on the data loop runs.
absl::Status Worker::OpenTasks() {
  devices_ = std::make_unique<WorkerDevices>(
      options_, WorkerDevices::Ports{.data = *data_,
                                     .memory = *memory_,
                                     .transport = data_plane_->transport(),
                                     .clock = clock_,
                                     .metrics = *metrics_});
  RETURN_IF_ERROR(devices_->Open());
  return data_plane_->OpenTasks({.worker = options_.name, .state_folder = options_.state_folder},
                                *devices_);
}

absl::Status Worker::OpenServices() {
  RETURN_IF_ERROR(services_->Open({.control = *control_,
                                   .data = *data_,
                                   .devices = *devices_,
                                   .tasks = data_plane_->tasks(),
                                   .replayer = data_plane_->replayer(),
                                   .clock = clock_}));
  RETURN_IF_ERROR(devices_->ServeMemory());
  session_ = std::make_unique<ControllerSession>(
      ControllerSession::Options{.worker = options_.name,
                                 .incarnation = incarnation_,
                                 .controllers = options_.controllers,
                                 .insecure = options_.insecure,
                                 .data_interfaces = options_.data.interfaces,
                                 .version_refused_max = options_.version_refused_max,
                                 .on_drained = options_.on_drained,
                                 .on_refused = options_.on_refused},
      ControllerSession::Ports{.control = *control_,
                               .devices = *devices_,
                               .tasks = data_plane_->tasks(),
                               .clock = clock_,
                               .metrics = *metrics_});
  return session_->Open(execution_address(), data_plane_->transport());
}

void Worker::Stop(absl::Duration drain_timeout) {
  if (std::exchange(stopped_, true) || !started_) return;
  services_->SayStopping();
  session_->TellLeaving();
  data_plane_->FinishTasks(drain_timeout);
  services_->StopPrograms();
  session_->Leave();
  services_->Stop();
  devices_->StopServingMemory();
  StopLoops();
  LogInfo("worker_stopped", {{"worker_id", options_.name}});
}

// The control loop first, since it posts to the data loop, which posts to the memory loop.
void Worker::StopLoops() {
  if (control_ != nullptr) control_->Stop();
  if (data_ != nullptr) {
    if (devices_ != nullptr) devices_->StopGpus();
    data_->Stop();
  }
  if (memory_ != nullptr) memory_->Stop();
}

const std::vector<DeviceId>& Worker::devices() const { return devices_->devices(); }

const std::string& Worker::execution_address() const { return services_->address(); }

std::string Worker::metrics_address() const { return services_->metrics_address(); }

StorageTable& Worker::storages() { return devices_->storages(); }

absl::StatusOr<std::unique_ptr<PipelineLoop>> Worker::WaitForPipeline(absl::Duration timeout) {
  return services_->WaitForPipeline(timeout);
}

}  // namespace crossmesh
