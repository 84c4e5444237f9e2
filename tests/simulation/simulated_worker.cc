#include "tests/simulation/simulated_worker.h"

#include "common/base/check.h"
#include "common/event_loop/event_loop.h"
#include "common/metrics/worker_metrics.h"
#include "common/wire/session_protocol.h"
#include "tests/simulation/simulated_controller.h"
#include "tests/simulation/simulated_programs.h"
#include "tests/simulation/simulated_run_history.h"
#include "tests/simulation/simulated_session.h"
#include "worker/agent/session_agent.h"
#include "worker/courses/course_counters.h"
#include "worker/courses/course_task_runner.h"
#include "worker/executor/executor.h"
#include "worker/executor/replay_runner.h"
#include "worker/memory/storage_table.h"
#include "worker/pipeline/served_program.h"
#include "worker/tasks/execute_call.h"
#include "worker/tasks/task_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Storage for chunks in several pieces.
constexpr int64_t kStagingBytes = 1 << 18;

std::unique_ptr<EventLoop> MakeLoop(const Clock& clock) {
  absl::StatusOr<std::unique_ptr<EventLoop>> loop =
      EventLoop::Create(clock, {.spin = absl::ZeroDuration()});
  CHECK_OK(loop);
  return *std::move(loop);
}

}  // namespace

// Tells the history which controllers' tasks are begun.
class SimulatedWorker::Runner final : public TaskRunner {
 public:
  Runner(const Ports& ports, TaskRunner& inner) : ports_(ports), inner_(inner) {}

  absl::Status Start(TaskSpec spec, TaskObserver& observer) override {
    ports_.history.OnObeyed(ports_.node.name(), spec.key.epoch);
    return inner_.Start(std::move(spec), observer);
  }
  void Cancel(const TaskKey& key, absl::Status why) override { inner_.Cancel(key, std::move(why)); }
  void Refuse(const TaskKey& key) override { inner_.Refuse(key); }
  void RaiseEpoch(uint64_t epoch) override { inner_.RaiseEpoch(epoch); }
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override {
    inner_.PeerLost(key, worker, std::move(why));
  }
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override {
    return inner_.MovedBytes(key);
  }

 private:
  const Ports& ports_;
  TaskRunner& inner_;
};

// In the order in which memory outlives what could write it.
struct SimulatedWorker::Process {
  Process(const Ports& ports, std::vector<DeviceId> devices, EpochFence fence,
          std::function<void(const absl::Status&)> on_refused)
      : control(MakeLoop(ports.node.clock())),
        data(MakeLoop(ports.node.clock())),
        executor(Executor::Create(*data, {.staging_bytes = kStagingBytes})),
        transport(ports.fabric, ports.node, *executor),
        courses(Attach()),
        runner(ports, *courses),
        tasks({.worker = ports.node.name(), .devices = devices},
              {.control = *control,
               .data = *data,
               .runner = runner,
               .storages = storages,
               .memory = memory,
               .clock = ports.node.clock(),
               .metrics = metrics},
              std::move(fence)),
        host(tasks, std::move(on_refused)) {
    data->AddSource(transport);
    programs = std::make_unique<SimulatedPrograms>(
        SimulatedPrograms::Ports{.node = ports.node,
                                 .control = *control,
                                 .data = *data,
                                 .replayer = executor->replays(),
                                 .memory = memory,
                                 .tasks = tasks,
                                 .history = ports.runs},
        std::move(devices));
  }

  // What runs courses needs an executor with a transport.
  std::unique_ptr<CourseTaskRunner> Attach() {
    CHECK_OK(executor->Attach(transport));
    return std::make_unique<CourseTaskRunner>(
        CourseTaskRunner::Ports{.loop = *data,
                                .replays = executor->replays(),
                                .others = *executor,
                                .counters = course_counters,
                                .make_memory = [this](const DeviceId& /*device*/, ByteCount bytes) {
                                  return memory.MakeArena("steps", bytes);
                                }});
  }

  WorkerMetrics metrics;
  StorageTable storages{Arena::Pages::kSmall};
  MemoryBudget memory{ByteCount(int64_t{1} << 26)};
  std::unique_ptr<EventLoop> control;
  std::unique_ptr<EventLoop> data;
  // The transport outlives messages that the executor holds, so Kill takes the executor first, and
  // what uses it before that.
  std::unique_ptr<Executor> executor;
  SimulatedTransport transport;
  CourseCounters course_counters;
  std::unique_ptr<CourseTaskRunner> courses;
  Runner runner;
  TaskTable tasks;
  std::unique_ptr<SimulatedPrograms> programs;

  struct Destination {
    StorageKey key;
    SimulatedHistory::Place place;
    uint64_t generation = 1;  // as it was looked at last
  };
  std::vector<Destination> destinations;
  bool had_tasks = false;              // after the last step
  std::optional<absl::Duration> wake;  // for which the node wakes it
  SimulatedSessionHost host;
  std::unique_ptr<SessionAgent> agent;
};

SimulatedWorker::SimulatedWorker(const Ports& ports, std::string host)
    : ports_(ports), host_(std::move(host)) {
  ports_.node.OnStepped([this] { OnStepped(); });
}

SimulatedWorker::~SimulatedWorker() {
  if (process_ != nullptr) Kill();
}

void SimulatedWorker::Start() {
  ports_.node.Start();
  EpochFence fence;
  CHECK_OK(fence.Raise(fence_));
  process_ = std::make_unique<Process>(ports_, std::vector<DeviceId>{{host_, 0}, {host_, 1}},
                                       std::move(fence),
                                       [this](const absl::Status& why) { OnRefused(why); });
  MakeStorages();
  process_->agent = MakeAgent();
  ports_.node.After(ports_.node.world().Between(absl::ZeroDuration(), absl::Seconds(1)),
                    [this] { process_->agent->Start(); });
}

void SimulatedWorker::Kill() {
  ports_.node.Kill();
  ports_.network.Reset(ports_.node);
  process_->data->RemoveSource(process_->transport);
  process_->courses.reset();
  process_->executor.reset();
  process_.reset();
}

void SimulatedWorker::MakeStorages() {
  for (int i = 0; i < std::ssize(ports_.reshards); ++i) {
    const SampleReshard& reshard = ports_.reshards[i];
    for (size_t d = 0; d < reshard.sources.size(); ++d) {
      if (reshard.sources[d].host != host_) continue;
      CHECK_OK(process_->storages.Create({reshard.source_storage, reshard.sources[d]},
                                         StorageBytesOf(reshard, Side::kSource, d)));
    }
    FillSource(i);
    for (size_t d = 0; d < reshard.destinations.size(); ++d) {
      if (reshard.destinations[d].host != host_) continue;
      const StorageKey key = {reshard.destination_storage, reshard.destinations[d]};
      CHECK_OK(process_->storages.Create(key, StorageBytesOf(reshard, Side::kDestination, d)));
      process_->destinations.push_back({.key = key, .place = {i, d, ports_.node.life()}});
      ports_.history.OnDestination(process_->destinations.back().place, 0);
    }
  }
}

void SimulatedWorker::FillSource(int reshard) {
  if (process_ == nullptr) return;
  const SampleReshard& sample = ports_.reshards[reshard];
  for (size_t d = 0; d < sample.sources.size(); ++d) {
    if (sample.sources[d].host != host_) continue;
    const auto opened = process_->storages.Open({sample.source_storage, sample.sources[d]});
    CHECK_OK(opened);
    FillStorage(sample, d, ports_.versions[reshard], opened->arena->bytes());
  }
}

std::shared_ptr<ExecuteCall> SimulatedWorker::Accept(
    const std::shared_ptr<SimulatedStream>& stream,
    const std::shared_ptr<SimulatedCallClient<v1::ExecuteResponse>>& client) {
  auto call = std::make_shared<ExecuteCall>(
      process_->tasks, std::make_shared<SimulatedCaller<v1::ExecuteResponse>>(stream, client));
  stream->Hear(1, [call](const absl::Status& /*status*/) { call->OnGone(); });
  return call;
}

std::shared_ptr<ServedProgram> SimulatedWorker::Accept(
    const std::shared_ptr<SimulatedStream>& stream,
    const std::shared_ptr<SimulatedCallClient<v1::RunProgramResponse>>& client) {
  return process_->programs->Accept(stream, client);
}

void SimulatedWorker::OnRequest(const std::shared_ptr<SimulatedStream>& stream,
                                const std::shared_ptr<ServedProgram>& call,
                                const v1::RunProgramRequest& request, uint64_t epoch) {
  call->OnRequest(request);
  // A refusal ends the call.
  if (request.has_start() && stream->is_open(1)) ports_.history.OnObeyed(name(), epoch);
}

void SimulatedWorker::OnRequest(const std::shared_ptr<SimulatedStream>& stream,
                                const std::shared_ptr<ExecuteCall>& call,
                                const v1::ExecuteRequest& request, uint64_t epoch) {
  const bool is_commit = request.has_resolve() && request.resolve().commit();
  if (is_commit && on_commit_order_ != nullptr) {
    const auto on_order = std::move(on_commit_order_);
    on_order();
    return ports_.node.Run(ports_.node.life(), [this, stream, call, request, epoch] {
      OnRequest(stream, call, request, epoch);
    });
  }
  const uint64_t highest = process_->tasks.fence().highest();
  call->OnRequest(request);
  const bool is_order = request.has_start() || request.has_adopt() || request.has_resolve();
  // A refusal ends the call.
  if (is_order && epoch < highest && stream->is_open(1)) ports_.history.OnObeyed(name(), epoch);
}

void SimulatedWorker::OnStepped() {
  if (process_ == nullptr) return;
  do {
    while (process_->control->RunOnce(absl::ZeroDuration()) +
               process_->data->RunOnce(absl::ZeroDuration()) >
           0) {
    }
  } while (process_->programs->Compute());
  ports_.history.OnObeyed(name(), process_->tasks.fence().highest());
  fence_ = process_->tasks.fence().highest();
  LookAtDestinations();
  ScheduleWake();
}

// Without a task nothing commits.
void SimulatedWorker::LookAtDestinations() {
  const bool has_tasks = process_->tasks.size() > 0;
  if (!std::exchange(process_->had_tasks, has_tasks) && !has_tasks) return;
  for (Process::Destination& destination : process_->destinations) {
    const auto opened = process_->storages.Open(destination.key);
    CHECK_OK(opened);
    const uint64_t generation = opened->status.generation;
    if (std::exchange(destination.generation, generation) == generation) continue;
    const auto& [reshard, device, life] = destination.place;
    ports_.history.OnDestination(
        destination.place, VersionIn(ports_.reshards[reshard], device, opened->arena->bytes()));
  }
}

void SimulatedWorker::ScheduleWake() {
  std::optional<absl::Duration> next = process_->control->NextTimer();
  const std::optional<absl::Duration> other = process_->data->NextTimer();
  if (other.has_value()) next = std::min(next.value_or(*other), *other);
  const absl::Duration now = ports_.node.clock().Monotonic();
  if (process_->wake.has_value() && *process_->wake <= now) process_->wake.reset();
  if (!next.has_value() || process_->wake.value_or(absl::InfiniteDuration()) <= *next) return;
  process_->wake = *next;
  ports_.node.After(*next - now, [] {});
}

std::string SimulatedWorker::Leftovers() {
  if (process_ == nullptr) return "";
  const ExecutorCounters& counters = process_->executor->counters();
  if (counters.staging_bytes_used != 0) {
    return absl::StrCat(name(), " has ", counters.staging_bytes_used, " bytes of staging in use");
  }
  if (!process_->programs->is_idle()) return absl::StrCat(name(), " has a program that runs");
  const std::vector<std::string> held = process_->tasks.HeldOperations(UINT64_MAX);
  if (!held.empty()) return absl::StrCat(name(), " holds a task of operation ", held.front());
  for (const StorageStatus& storage : process_->storages.List()) {
    if (storage.readers == 0 && !storage.writing) continue;
    return absl::StrCat(name(), ": storage ", storage.key.name, " of ",
                        ToString(storage.key.device), " is leased");
  }
  return "";
}

std::unique_ptr<SessionAgent> SimulatedWorker::MakeAgent() {
  SessionAgent::Options options;
  for (const SimulatedController* controller : controllers_) {
    options.controllers.push_back(controller->address());
  }
  v1::WorkerSessionRequest::Register& registration = options.registration;
  registration.set_worker(name());
  registration.set_incarnation(ports_.node.life());
  registration.set_devices(absl::StrCat(host_, ".0-1"));
  registration.set_execution_address(address());
  registration.set_data_address(process_->transport.address());
  registration.set_protocol(kSessionProtocols.newest);
  registration.set_oldest_protocol(kSessionProtocols.oldest);
  options.seed = ports_.node.world().Pick(1 << 30);
  auto agent = SessionAgent::Create(
      {.loop = *process_->control, .host = process_->host, .metrics = process_->metrics},
      std::move(options),
      std::make_unique<SimulatedSessionCaller>(ports_.node, ports_.network, controllers_));
  CHECK_OK(agent);
  return *std::move(agent);
}

void SimulatedWorker::OnRefused(const absl::Status& /*why*/) {
  SimulatedWorld& world = ports_.node.world();
  world.After(absl::ZeroDuration(), [this, life = ports_.node.life()] {
    if (ports_.node.life() != life) return;
    Kill();
    ports_.node.world().After(absl::Seconds(1), [this, life = ports_.node.life()] {
      if (ports_.node.life() == life) Start();
    });
  });
}

}  // namespace crossmesh
