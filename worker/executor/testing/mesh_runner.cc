#include "worker/executor/testing/mesh_runner.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/worker_part.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/replay_runner.h"
#include "worker/transport/striped/striped_transport.h"
#include "worker/transport/testing/inprocess_transport.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

namespace {

// More than the deadline of a task, and less than what the runner of tests gives a test, which
// would not say what was missing.
constexpr absl::Duration kPatience = absl::Seconds(90);

// Copies of a status share their text, counted inside a library that ThreadSanitizer does not see
// into; so what goes to another thread is made anew.
absl::Status Detached(const absl::Status& status) { return {status.code(), status.message()}; }

DeviceReport Detached(DeviceReport report) {
  report.status = Detached(report.status);
  return report;
}

TaskReport Detached(TaskReport report) {
  report.status = Detached(report.status);
  for (DeviceReport& device : report.devices) device.status = Detached(device.status);
  return report;
}

}  // namespace

// Gathers the reports of all workers for the thread that waits.
class MeshRunner::Collector final : public TaskObserver {
 public:
  explicit Collector(int32_t open) : open_(open) {}

  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) override {
    MutexLock lock(mutex_);
    CHECK(devices_.emplace(report.device, Detached(report)).second) << "device reported twice";
  }
  void OnTaskDone(const TaskReport& report) override {
    MutexLock lock(mutex_);
    reports_.push_back(Detached(report));
    Close();
  }
  void OnRefused(const absl::Status& status) {
    MutexLock lock(mutex_);
    refused_ = Detached(status);
    Close();
  }

  absl::StatusOr<MeshOutcome> Wait() {
    MutexLock lock(mutex_);
    // Whatever the loops still run has this object: a test that waits in vain ends here.
    while (open_ > 0) {
      const bool late = closed_.WaitFor(mutex_, kPatience);
      CHECK(!late || open_ == 0) << "waited " << kPatience << " in vain for the reports of "
                                 << open_ << " workers; " << devices_.size()
                                 << " devices have reported";
    }
    RETURN_IF_ERROR(refused_);
    return MeshOutcome{.reports = std::move(reports_), .devices = std::move(devices_)};
  }

 private:
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    --open_;
    closed_.Signal();
  }

  Mutex mutex_;
  CondVar closed_;
  int32_t open_ ABSL_GUARDED_BY(mutex_);
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);
  std::vector<TaskReport> reports_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<DeviceRank, DeviceReport> devices_ ABSL_GUARDED_BY(mutex_);
};

// One worker's side of replays; all but Wait is for its loop.
class MeshRunner::Replayer final : public ReplayObserver {
 public:
  Replayer(Executor& executor, const TaskSpec& task, TileMemory& memory, uint32_t instances)
      : runner_(executor.replays()),
        key_(ReplayKeyOf(task.key)),
        part_(task.part),
        memory_(memory),
        instances_(instances) {}

  void Start(const TaskSpec& task) {
    ReplaySpec spec{.key = key_,
                    .token_high = task.token_high,
                    .token_low = task.token_low,
                    .part = task.part,
                    .buffers = {{.sources = task.sources, .destinations = task.destinations}},
                    .peers = task.peers,
                    .peer_of_device = task.peer_of_device,
                    .checksums = task.checksums,
                    .stall_limit = task.stall_limit};
    Note(runner_.StartReplays(std::move(spec), *this));
    Begin(0);
  }

  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) override {
    Note(report.status);
    Note(memory_.CheckDestination(report.device));
  }
  void OnTaskDone(const TaskReport& report) override {
    Note(report.status);
    Begin(report.key.instance + 1);
  }
  void OnReplaysStopped(const ReplayKey& /*key*/) override {
    MutexLock lock(mutex_);
    stopped_ = true;
    changed_.Signal();
  }

  absl::Status Wait() {
    MutexLock lock(mutex_);
    while (!stopped_) {
      const bool late = changed_.WaitFor(mutex_, kPatience);
      CHECK(!late || stopped_) << "waited " << kPatience
                               << " in vain for a worker to end all instances";
    }
    return failure_;
  }

 private:
  void Begin(uint32_t instance) {
    if (instance == instances_) {
      return runner_.StopReplays(key_, absl::CancelledError("done"), instances_);
    }
    for (const DeviceRank device : part_->destinations()) memory_.SpoilDestination(device);
    runner_.Replay(key_, 0, instance);
    runner_.ReplaySourceHere(key_, instance);
  }
  void Note(const absl::Status& status) {
    if (failure_.ok()) failure_ = Detached(status);
  }

  ReplayRunner& runner_;
  const ReplayKey key_;
  const std::shared_ptr<const PreparedPart> part_;
  TileMemory& memory_;
  const uint32_t instances_;
  absl::Status failure_;  // of the loop until it has stopped

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

MeshRunner::MeshRunner(const Options& options) : fabric_(options.faults) {
  for (int32_t i = 0; i < options.workers; ++i) {
    auto worker = std::make_unique<Worker>();
    auto loop = EventLoop::Create(clock_, {.name = absl::StrCat("w", i)});
    CHECK_OK(loop);
    worker->loop = *std::move(loop);
    worker->executor = Executor::Create(*worker->loop, options.executor);
    auto transport = MakeTransport(options, i, *worker->executor);
    CHECK_OK(transport);
    worker->transport = *std::move(transport);
    CHECK_OK(worker->executor->Attach(*worker->transport));
    worker->loop->AddSource(*worker->transport);
    if (options.make_runner) worker->runner = options.make_runner(*worker->loop, *worker->executor);
    workers_.push_back(std::move(worker));
  }
  for (const auto& worker : workers_) worker->loop->Start();
}

absl::StatusOr<std::unique_ptr<Transport>> MeshRunner::MakeTransport(const Options& options,
                                                                     int32_t worker,
                                                                     TransportSink& sink) {
  const StripedTransport::MakeNic make = [this](TransportSink& nic_sink) {
    return InProcessTransport::Create(fabric_, nic_sink);
  };
  if (options.nics.empty()) return make(sink);
  const std::vector nics(options.nics[worker % options.nics.size()], make);
  return StripedTransport::Create(sink, nics);
}

MeshRunner::~MeshRunner() {
  for (const auto& worker : workers_) worker->loop->Stop();
}

absl::StatusOr<MeshOutcome> MeshRunner::Run(const Plan& plan, std::vector<int32_t> worker_of_device,
                                            TileMemory& memory, RunOptions options) {
  ASSIGN_OR_RETURN(std::vector<TaskSpec> specs, MakeSpecs(plan, worker_of_device, memory, options));
  Collector collector(workers() - (options.absent_worker.has_value() ? 1 : 0));
  for (int32_t i = 0; i < workers(); ++i) {
    if (options.absent_worker == i) continue;
    TaskRunner& runner =
        workers_[i]->runner == nullptr ? *workers_[i]->executor : *workers_[i]->runner;
    workers_[i]->loop->Post([&, i, spec = std::move(specs[i])]() mutable {
      const TaskKey key = spec.key;
      const absl::Status started = runner.Start(std::move(spec), collector);
      if (!started.ok()) return collector.OnRefused(started);
      if (i == 0 && options.disturb) options.disturb(runner, key);
    });
  }
  ASSIGN_OR_RETURN(MeshOutcome outcome, collector.Wait());
  outcome.worker_of_device = std::move(worker_of_device);
  return outcome;
}

absl::Status MeshRunner::RunReplays(const Plan& plan, const std::vector<int32_t>& worker_of_device,
                                    TileMemory& memory, const RunOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<TaskSpec> specs,
                   MakeSpecs(plan, worker_of_device, memory, options));
  std::vector<std::unique_ptr<Replayer>> replayers;
  for (int32_t i = 0; i < workers(); ++i) {
    replayers.push_back(
        std::make_unique<Replayer>(*workers_[i]->executor, specs[i], memory, options.instances));
  }
  for (int32_t i = 0; i < workers(); ++i) {
    workers_[i]->loop->Post([&, i] { replayers[i]->Start(specs[i]); });
  }
  absl::Status failure;
  for (const auto& replayer : replayers) failure.Update(replayer->Wait());
  return failure;
}

absl::StatusOr<std::vector<TaskSpec>> MeshRunner::MakeSpecs(
    const Plan& plan, const std::vector<int32_t>& worker_of_device, const TileMemory& memory,
    const RunOptions& options) {
  std::vector<std::vector<DeviceId>> devices(workers());
  for (size_t rank = 0; rank < worker_of_device.size(); ++rank) {
    devices[worker_of_device[rank]].push_back(plan.tensors().devices()[rank]);
  }
  ASSIGN_OR_RETURN(std::vector<WorkerPart> parts, CutParts(plan, devices));
  const TaskKey key{.operation = ++operations_, .epoch = 1};
  std::vector<TaskSpec> specs;
  for (int32_t i = 0; i < workers(); ++i) {
    TaskSpec spec{.key = key,
                  .token_high = 7,
                  .token_low = key.operation,
                  .checksums = options.checksums,
                  .deadline = options.deadline,
                  .stall_limit = options.stall_limit};
    ASSIGN_OR_RETURN(spec.part,
                     PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts[i]))));
    for (int32_t peer = 0; peer < workers(); ++peer) {
      spec.peers.push_back({.worker = absl::StrCat("w", peer), .address = address(peer)});
    }
    for (DeviceRank rank = 0; rank < std::ssize(worker_of_device); ++rank) {
      if (worker_of_device[rank] != i) {
        spec.peer_of_device[rank] = worker_of_device[rank];
        continue;
      }
      spec.sources[rank] = memory.tiles(Side::kSource, rank);
      spec.destinations[rank] = memory.tiles(Side::kDestination, rank);
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

ExecutorCounters MeshRunner::Counters() {
  ExecutorCounters sum;
  for (const auto& worker : workers_) {
    worker->loop->RunAndWait([&] {
      const ExecutorCounters& counters = worker->executor->counters();
      for (const LinkBytes& link : counters.links) {
        sum.At(link.link).sent += link.sent;
        sum.At(link.link).received += link.received;
      }
      sum.copied_bytes += counters.copied_bytes;
      sum.relays_succeeded += counters.relays_succeeded;
      sum.relays_failed += counters.relays_failed;
      sum.checksum_failures += counters.checksum_failures;
      sum.stalls += counters.stalls;
      sum.messages_dropped += counters.messages_dropped;
      sum.staging_bytes_used += counters.staging_bytes_used;
    });
  }
  return sum;
}

}  // namespace crossmesh
