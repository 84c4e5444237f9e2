#include "tests/benchmark/collective_worker.h"

#include "common/base/byte_count.h"
#include "common/base/check.h"
#include "common/base/mutex.h"

#include <optional>
#include <utility>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

std::unique_ptr<EventLoop> MakeLoop(const Clock& clock, const std::string& name) {
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create(clock, {.name = name});
  CHECK_OK(loop);
  return *std::move(loop);
}

absl::StatusOr<std::shared_ptr<Arena>> MakeLent(ArenaLender& lender, ByteCount bytes) {
  absl::StatusOr<std::shared_ptr<Arena>> arena = Arena::Create("benchmark", bytes);
  CHECK_OK(arena);
  return lender.Lend(*std::move(arena));
}

// Waits for the end of one task.
class TaskEnd final : public TaskObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& report) override {
    CHECK_OK(report.status);
  }
  void OnTaskDone(const TaskReport& report) override {
    CHECK_OK(report.status);
    MutexLock lock(mutex_);
    report_ = report;
    changed_.Signal();
  }
  TaskReport Wait() {
    MutexLock lock(mutex_);
    while (!report_.has_value()) changed_.Wait(mutex_);
    return *std::move(report_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<TaskReport> report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

CollectiveWorker::CollectiveWorker(const DataTransportOptions& options)
    : memory_(MakeLoop(clock_, "memory")), data_(MakeLoop(clock_, "data")) {
  executor_ = Executor::Create(*data_, {});
  absl::StatusOr<std::unique_ptr<Transport>> transport = MakeDataTransport(options, *executor_);
  CHECK_OK(transport);
  transport_ = *std::move(transport);
  CHECK_OK(executor_->Attach(*transport_));
  data_->AddSource(*transport_);
  runner_ = std::make_unique<CourseTaskRunner>(CourseTaskRunner::Ports{
      .loop = *data_,
      .replays = executor_->replays(),
      .others = *executor_,
      .counters = counters_,
      .make_memory = [this](const DeviceId& /*device*/, ByteCount bytes) {
        return kept_arrays_.Take(bytes, [&] { return MakeLent(lender_, bytes); });
      }});
  lender_.Start({.data = *data_, .memory = *memory_, .transport = *transport_});
  memory_->Start();
  data_->Start();
}

CollectiveWorker::~CollectiveWorker() {
  data_->Stop();
  lender_.Stop();
  memory_->Stop();
}

std::shared_ptr<Arena> CollectiveWorker::MakeArena(int64_t bytes) {
  absl::StatusOr<std::shared_ptr<Arena>> arena = MakeLent(lender_, ByteCount(bytes));
  CHECK_OK(arena);
  return *std::move(arena);
}

TaskReport CollectiveWorker::Run(TaskSpec spec) {
  TaskEnd end;
  data_->Post([this, &end, spec = std::move(spec)]() mutable {
    CHECK_OK(runner_->Start(std::move(spec), end));
  });
  return end.Wait();
}

}  // namespace crossmesh
