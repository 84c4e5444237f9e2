#include "worker/data_plane.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "common/metrics/worker_metrics.h"
#include "worker/courses/counted_course_runner.h"
#include "worker/courses/course_replayer.h"
#include "worker/courses/course_task_runner.h"
#include "worker/data_exposure.h"
#include "worker/data_transport.h"
#include "worker/executor/executor.h"
#include "worker/executor/replay_runner.h"
#include "worker/gpu/tasks/bridged_task_runner.h"
#include "worker/gpu/tasks/gpu_task_runner.h"
#include "worker/gpu/tasks/mixed_task_runner.h"
#include "worker/latch.h"
#include "worker/memory/storage_table.h"
#include "worker/tasks/task_table.h"
#include "worker/transport/transport.h"
#include "worker/worker_devices.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <absl/strings/str_cat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kBusyInterval = absl::Milliseconds(100);
constexpr absl::Duration kIdleInterval = absl::Seconds(1);
// For tasks that were cancelled to end: longer than the default stall limit.
constexpr absl::Duration kCancelGrace = absl::Seconds(10);
// For the control loop to say that nothing runs.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(100);

// Of the host. Bounce buffers of GPUs must not crowd out storages.
ByteCount HalfOfMemory() {
  return ByteCount(int64_t{sysconf(_SC_PHYS_PAGES)} / 2 * sysconf(_SC_PAGE_SIZE));
}

}  // namespace

// Brings the executor's counters to the metrics: every 100 ms while they move, every second
// otherwise. Confined to the data loop, apart from construction.
class DataPlane::Sampler {
 public:
  Sampler(DataPlane& plane, const StorageTable& storages) : plane_(plane), storages_(storages) {}

  void Sample() {
    const ExecutorCounters now = plane_.executor_->counters();
    const bool moved = RecordCounters(now);
    RecordMemory(now);
    last_ = now;
    plane_.ports_.data.RunAfter(moved ? kBusyInterval : kIdleInterval, [this] { Sample(); });
  }

 private:
  // Whether bytes have moved since the last time.
  bool RecordCounters(const ExecutorCounters& now);
  void RecordMemory(const ExecutorCounters& now);
  void RecordCourses();

  DataPlane& plane_;
  const StorageTable& storages_;
  ExecutorCounters last_;
  CourseCounters last_courses_;
};

bool DataPlane::Sampler::RecordCounters(const ExecutorCounters& now) {
  WorkerMetrics& metrics = plane_.ports_.metrics;
  bool moved = false;
  for (const LinkBytes& link : now.links) {
    const LinkBytes& before = last_.At(link.link);
    const int64_t sent = link.sent - before.sent;
    const int64_t received = link.received - before.received;
    if (sent == 0 && received == 0) continue;
    moved = true;
    const auto label = FindTransportLink(plane_.transport_->name(), link.link);
    if (label.has_value()) metrics.Transferred(*label, sent, received);
  }
  const int64_t copied = now.copied_bytes - last_.copied_bytes;
  // A copy inside the worker is sent and received here.
  if (copied > 0) metrics.Transferred(TransportLink::kInprocessLocal, copied, copied);
  // The executor does not count these by link: they are given to the fastest.
  for (int64_t i = last_.stalls; i < now.stalls; ++i) metrics.ChannelStalled(plane_.link_);
  for (int64_t i = last_.checksum_failures; i < now.checksum_failures; ++i) {
    metrics.ChecksumFailed(plane_.link_);
  }
  moved |= copied > 0;
  if (moved) metrics.SetLastProgress(plane_.ports_.clock.Now());
  return moved;
}

void DataPlane::Sampler::RecordMemory(const ExecutorCounters& now) {
  plane_.ports_.metrics.SetStagingBytes(now.staging_bytes_used, plane_.staging_bytes_);
  plane_.ports_.metrics.SetStagingPeak(now.send_staging_peak, now.receive_staging_peak);
  const StorageBytes bytes = storages_.Bytes();
  plane_.ports_.metrics.SetTensorBytes(bytes.resident, bytes.receiving, bytes.shadows);
  RecordCourses();
}

void DataPlane::Sampler::RecordCourses() {
  const CourseCounters& now = plane_.courses_;
  WorkerMetrics& metrics = plane_.ports_.metrics;
  for (size_t kind = 0; kind < now.steps_moved.size(); ++kind) {
    metrics.CourseSteps(kind, now.steps_moved[kind] - last_courses_.steps_moved[kind]);
  }
  metrics.Reduced(now.reduced_bytes - last_courses_.reduced_bytes);
  metrics.SetArrayBytes(now.array_bytes, now.array_bytes_peak);
  last_courses_ = now;
}

DataPlane::DataPlane(const Ports& ports, int64_t staging_bytes)
    : ports_(ports), staging_bytes_(staging_bytes) {}

DataPlane::~DataPlane() = default;

absl::StatusOr<std::unique_ptr<DataPlane>> DataPlane::Create(const Ports& ports,
                                                             const DataTransportOptions& transport,
                                                             const ExecutorOptions& executor) {
  std::unique_ptr<DataPlane> plane(new DataPlane(ports, executor.staging_bytes));
  RETURN_IF_ERROR(CheckDataExposure(transport));
  plane->executor_ = Executor::Create(ports.data, executor);
  ASSIGN_OR_RETURN(plane->transport_, MakeDataTransport(transport, *plane->executor_));
  RETURN_IF_ERROR(plane->executor_->Attach(*plane->transport_));
  plane->course_replayer_ = std::make_unique<CourseReplayer>(CourseReplayer::Ports{
      .loop = ports.data, .others = plane->executor_->replays(), .counters = plane->courses_});
  ports.data.AddSource(*plane->transport_);
  plane->link_ =
      *FindTransportLink(plane->transport_->name(), transport.shared_memory ? "shm" : "tcp");
  return plane;
}

PartReplayer& DataPlane::replayer() { return *course_replayer_; }

absl::Status DataPlane::OpenTasks(const TaskOptions& options, WorkerDevices& devices) {
  worker_ = options.worker;
  EpochFence fence;
  if (!options.state_folder.empty()) {
    ASSIGN_OR_RETURN(fence, EpochFence::Open(absl::StrCat(options.state_folder, "/epoch")));
  }
  course_runner_ = std::make_unique<CourseTaskRunner>(CourseTaskRunner::Ports{
      .loop = ports_.data,
      .replays = executor_->replays(),
      .others = *executor_,
      .counters = courses_,
      .make_memory = [this, &devices](const DeviceId& device, ByteCount bytes) {
        if (devices.HasGpu(device)) return bridge_->MakeBounceBuffer(bytes);
        return devices.MakeArrays(device, bytes);
      }});
  bridge_ = std::make_unique<BridgedTaskRunner>(
      BridgedTaskRunner::Ports{
          .loop = ports_.data,
          .gpus = devices.gpus(),
          .on_host = *course_runner_,
          .make_arena = [&devices](ByteCount bytes) { return devices.MakeBounceBuffer(bytes); }},
      BridgedTaskRunner::Options{.bounce_bytes_max = HalfOfMemory()});
  gpu_runner_ = std::make_unique<GpuTaskRunner>(ports_.data, devices.gpus(), *bridge_);
  counted_runner_ = std::make_unique<CountedCourseRunner>(CountedCourseRunner::Ports{
      .loop = ports_.data, .on_gpus = *gpu_runner_, .counters = courses_});
  mixed_runner_ = std::make_unique<MixedTaskRunner>(ports_.data, *counted_runner_, *bridge_);
  tasks_ = std::make_unique<TaskTable>(
      TaskTable::Options{.worker = worker_, .devices = devices.devices(), .link = link_},
      TaskTable::Ports{.control = ports_.control,
                       .data = ports_.data,
                       .runner = *mixed_runner_,
                       .storages = devices.storages(),
                       .memory = devices.memory(),
                       .clock = ports_.clock,
                       .metrics = ports_.metrics},
      std::move(fence));
  sampler_ = std::make_unique<Sampler>(*this, devices.storages());
  ports_.data.Post([this] { sampler_->Sample(); });
  return absl::OkStatus();
}

void DataPlane::FinishTasks(absl::Duration drain_timeout) {
  // Shared with the loop, which may call it after this thread has stopped to wait.
  const auto idle = std::make_shared<Latch>();
  ports_.control.Post([this, idle] { tasks_->Drain([idle] { idle->Set(); }); });
  if (idle->WaitFor(ports_.clock, std::max(drain_timeout, kAnswerTime))) return;
  LogWarning("worker_cancels_tasks",
             {{"worker_id", worker_}, {"drain_seconds", absl::ToDoubleSeconds(drain_timeout)}});
  ports_.control.Post([this] {
    tasks_->CancelAll(absl::CancelledError(absl::StrCat("worker ", worker_, ": it stops")));
  });
  idle->WaitFor(ports_.clock, kCancelGrace);
}

}  // namespace crossmesh
