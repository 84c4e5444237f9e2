#include "worker/worker.h"

#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/mesh/mesh.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/session_protocol.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// For tasks that were cancelled to end: longer than the default stall limit.
constexpr absl::Duration kCancelGrace = absl::Seconds(10);
// For the control loop to say that nothing runs.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(100);
constexpr absl::Duration kLeaveGrace = absl::Seconds(2);
constexpr absl::Duration kCallGrace = absl::Seconds(1);

// Set once; waited for by another thread.
class Latch {
 public:
  void Set() {
    MutexLock lock(mutex_);
    set_ = true;
    changed_.SignalAll();
  }
  // Whether it was set within the time.
  bool WaitFor(const Clock& clock, absl::Duration timeout) {
    const absl::Duration end = clock.Monotonic() + timeout;
    MutexLock lock(mutex_);
    while (!set_) {
      const absl::Duration left = end - clock.Monotonic();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mutex_, left);
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
};

// Of the host. BounceBuffers of GPUs must not crowd out storages.
ByteCount HalfOfMemory() {
  return ByteCount(int64_t{sysconf(_SC_PHYS_PAGES)} / 2 * sysconf(_SC_PAGE_SIZE));
}

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
      devices_(options_.devices),
      storages_([this](const StorageKey& key, ByteCount bytes) { return MakeArena(key, bytes); }) {}

Worker::~Worker() {
  Stop(absl::ZeroDuration());
  StopLoops();  // of one that could not be opened
  lender_.Stop();
}

absl::Status Worker::Open() {
  RETURN_IF_ERROR(OpenDataPlane());
  RETURN_IF_ERROR(OpenMetrics());
  RETURN_IF_ERROR(OpenGpus());
  RETURN_IF_ERROR(OpenTasks());
  RETURN_IF_ERROR(OpenService());
  RETURN_IF_ERROR(OpenMemorySocket());
  RETURN_IF_ERROR(OpenSession());
  started_ = true;
  memory_->Start();
  control_->Start();
  control_->Post([this] { agent_->Start(); });
  // Controllers make communicators of processes, and must not wait for those that are gone.
  data_->Post([this] {
    gpus_->SetOnChange([this] { control_->Post([this] { agent_->HurryHeartbeat(); }); });
  });
  LogInfo("worker_started", {{"worker_id", options_.name},
                             {"devices", DevicesToString(devices_)},
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
  executor_ = Executor::Create(*data_, options_.executor);
  ASSIGN_OR_RETURN(transport_, MakeDataTransport(options_.data, *executor_));
  RETURN_IF_ERROR(executor_->Attach(*transport_));
  data_->AddSource(*transport_);
  lender_.Start({.data = *data_, .memory = *memory_, .transport = *transport_});
  return absl::OkStatus();
}

absl::Status Worker::OpenMetrics() {
  worker_metrics_ = std::make_unique<WorkerMetrics>();
  rpc_metrics_ = std::make_unique<RpcMetrics>(kWorkerMethods);
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(exporter_, MetricsExporter::Start({.address = options_.metrics_listen,
                                                      .role = "worker",
                                                      .insecure = options_.insecure}));
  exporter_->Serve(worker_metrics_->metrics());
  exporter_->Serve(rpc_metrics_->metrics());
  return absl::OkStatus();
}

// From here on the data loop runs: processes of GPUs are its thread's children, and end with it.
absl::Status Worker::OpenGpus() {
  ASSIGN_OR_RETURN(
      gpus_,
      GpuDevices::Create(*data_, clock_, {.gpus = options_.gpus, .process = options_.gpu_process},
                         *worker_metrics_));
  data_->Start();
  Latch latch;
  absl::Status opened;
  data_->Post([&] {
    gpus_->Open([&](absl::Status status) {
      opened = std::move(status);
      latch.Set();
    });
  });
  latch.WaitFor(clock_, absl::InfiniteDuration());
  for (const GpuDevices::Driver& driver : gpus_->drivers()) devices_.push_back(driver.device);
  if (!opened.ok()) {
    LogWarning("worker_has_no_gpus", {{"worker_id", options_.name}, {"cause", opened.ToString()}});
  }
  if (!devices_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "worker ", options_.name, ": expected at least one device, found none: ", opened.message()));
}

absl::StatusOr<std::shared_ptr<Arena>> Worker::MakeArena(const StorageKey& key, ByteCount bytes) {
  if (gpus_->Has(key.device)) return gpus_->MakeArena(key, bytes);
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, MakeHostArena(key, bytes, options_.pages));
  return lender_.Lend(std::move(arena));
}

absl::StatusOr<std::shared_ptr<Arena>> Worker::MakeBounceBuffer(ByteCount bytes) {
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, Arena::Create("crossmesh:gpu_mirror", bytes));
  return lender_.Lend(std::move(arena));
}

absl::Status Worker::OpenTasks() {
  EpochFence fence;
  if (!options_.state_folder.empty()) {
    ASSIGN_OR_RETURN(fence, EpochFence::Open(absl::StrCat(options_.state_folder, "/epoch")));
  }
  const TransportLink link =
      *FindTransportLink(transport_->name(), options_.data.shared_memory ? "shm" : "tcp");
  gpu_runner_ = std::make_unique<GpuTaskRunner>(*data_, *gpus_);
  bridge_ = std::make_unique<BridgedTaskRunner>(
      BridgedTaskRunner::Ports{
          .loop = *data_,
          .gpus = *gpus_,
          .executor = *executor_,
          .make_arena = [this](ByteCount bytes) { return MakeBounceBuffer(bytes); }},
      BridgedTaskRunner::Options{.bounce_bytes_max = HalfOfMemory()});
  router_ = std::make_unique<TaskRouter>(*gpu_runner_, *bridge_);
  tasks_ = std::make_unique<TaskTable>(
      TaskTable::Options{.worker = options_.name, .devices = devices_, .link = link},
      TaskTable::Ports{.control = *control_,
                       .data = *data_,
                       .runner = *router_,
                       .storages = storages_,
                       .clock = clock_,
                       .metrics = *worker_metrics_},
      std::move(fence));
  sampler_ = std::make_unique<CounterSampler>(CounterSampler::Ports{.data = *data_,
                                                                    .transport = *transport_,
                                                                    .executor = *executor_,
                                                                    .storages = storages_,
                                                                    .clock = clock_,
                                                                    .metrics = *worker_metrics_},
                                              link, options_.executor.staging_bytes);
  data_->Post([this] { sampler_->Start(); });
  return absl::OkStatus();
}

absl::Status Worker::OpenService() {
  service_ = std::make_unique<ExecutionService>(*control_, *tasks_);
  programs_ = std::make_unique<ProgramHost>(
      ProgramHost::Options{.worker = options_.name,
                           .devices = options_.devices,
                           .computes = options_.computes_pipelines},
      ProgramHost::Ports{.control = *control_,
                         .data = *data_,
                         .runner = executor_->replays(),
                         .make_arena = [this](const DeviceId& device, ByteCount bytes) {
                           return MakeArena({.name = "pipeline", .device = device}, bytes);
                         }});
  pipeline_service_ = std::make_unique<PipelineExecutionService>(*programs_);
  ASSIGN_OR_RETURN(probes_, ProbeTable::Create({.interfaces = options_.data.interfaces}, clock_));
  probe_service_ = std::make_unique<ProbeService>(*probes_);
  communicators_ = std::make_unique<CommunicatorProxy>(*gpus_);
  communicator_service_ = std::make_unique<CommunicatorService>(*data_, *communicators_);
  ASSIGN_OR_RETURN(
      server_, RpcServer::Start({.addresses = {options_.listen},
                                 .insecure = options_.insecure,
                                 .services = {service_.get(), pipeline_service_.get(),
                                              probe_service_.get(), communicator_service_.get()},
                                 .metrics = rpc_metrics_.get()}));
  return absl::OkStatus();
}

absl::Status Worker::OpenMemorySocket() {
  if (options_.memory_socket.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(fd_server_,
                   FdServer::Create(storages_, {.socket_path = options_.memory_socket}));
  return absl::OkStatus();
}

absl::Status Worker::OpenSession() {
  ASSIGN_OR_RETURN(agent_, SessionAgent::Create(*control_,
                                                {.controllers = options_.controllers,
                                                 .insecure = options_.insecure,
                                                 .registration = Registration(),
                                                 .backoff_seed = Registration().incarnation()},
                                                *this, *worker_metrics_));
  return absl::OkStatus();
}

v1::WorkerSessionRequest::Register Worker::Registration() const {
  v1::WorkerSessionRequest::Register registration;
  registration.set_worker(options_.name);
  registration.set_incarnation(absl::ToUnixMicros(clock_.Now()));
  registration.set_devices(DevicesToString(devices_));
  registration.set_execution_address(execution_address());
  registration.set_transport(std::string(transport_->name()));
  registration.set_data_address(transport_->address());
  registration.set_version(std::string(Version()));
  registration.set_protocol(kSessionProtocol);
  for (const std::string& interface : options_.data.interfaces) {
    registration.add_data_interfaces(interface);
  }
  return registration;
}

void Worker::Refresh(v1::WorkerSessionRequest::Register& registration) {
  for (const GpuDevices::Driver& driver : gpus_->drivers()) {
    v1::Gpu& gpu = *registration.add_gpus();
    gpu.set_device(ToString(driver.device));
    *gpu.mutable_process() = ToProto(driver.rank);
  }
}

std::string Worker::metrics_address() const {
  return exporter_ == nullptr ? "" : exporter_->address();
}

void Worker::MakeHeartbeat(absl::AnyInvocable<void(Heartbeat)> done) {
  tasks_->CollectProgress(
      [this, done = std::move(done)](const std::vector<TaskTable::Progress>& tasks) mutable {
        Heartbeat heartbeat;
        for (const TaskTable::Progress& task : tasks) {
          v1::WorkerSessionRequest::TaskProgress& progress = *heartbeat.add_tasks();
          progress.set_operation_id(task.operation_id);
          progress.set_attempt(task.attempt);
          progress.set_moved_bytes(task.moved_bytes);
        }
        int64_t memory_bytes = 0;
        for (const StorageStatus& storage : storages_.List()) memory_bytes += storage.bytes;
        heartbeat.set_memory_bytes(memory_bytes);
        for (const GpuDevices::Driver& driver : gpus_->drivers()) {
          if (driver.rank.incarnation != 0) *heartbeat.add_gpu_processes() = ToProto(driver.rank);
        }
        done(std::move(heartbeat));
      });
}

void Worker::OnDrain() {
  LogInfo("worker_drains", {{"worker_id", options_.name}, {"asked_by", "controller"}});
  tasks_->Drain([this] {
    if (options_.on_drained) options_.on_drained();
  });
}

void Worker::Stop(absl::Duration drain_timeout) {
  if (std::exchange(stopped_, true) || !started_) return;
  FinishTasks(drain_timeout);
  programs_->Stop(kCancelGrace);
  LeaveController();
  probes_->Stop();
  communicator_service_->Stop();
  server_->Shutdown(kCallGrace);
  if (fd_server_ != nullptr) fd_server_->Stop();
  StopLoops();
  LogInfo("worker_stopped", {{"worker_id", options_.name}});
}

void Worker::StopLoops() {
  if (control_ != nullptr) control_->Stop();
  if (data_ != nullptr) {
    data_->Post([this] {
      if (gpus_ != nullptr) gpus_->Stop();
    });
    data_->Stop();
  }
  if (memory_ != nullptr) memory_->Stop();
}

void Worker::FinishTasks(absl::Duration drain_timeout) {
  // Shared with the loop, which may call it after this thread has stopped to wait.
  const auto idle = std::make_shared<Latch>();
  control_->Post([this, idle] { tasks_->Drain([idle] { idle->Set(); }); });
  if (idle->WaitFor(clock_, std::max(drain_timeout, kAnswerTime))) return;
  LogWarning("worker_cancels_tasks", {{"worker_id", options_.name},
                                      {"drain_seconds", absl::ToDoubleSeconds(drain_timeout)}});
  control_->Post([this] {
    tasks_->CancelAll(absl::CancelledError(absl::StrCat("worker ", options_.name, " stops")));
  });
  idle->WaitFor(clock_, kCancelGrace);
}

void Worker::LeaveController() {
  const auto left = std::make_shared<Latch>();
  control_->Post([this, left] { agent_->Leave([left] { left->Set(); }); });
  if (left->WaitFor(clock_, kLeaveGrace)) return;
  control_->Post([this] { agent_->BreakOff(); });
  left->WaitFor(clock_, absl::InfiniteDuration());
}

}  // namespace crossmesh
