#include "tests/benchmark/benchmark_worker.h"

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/plan/worker_part.h"
#include "common/reshard/reshard_tensors.h"
#include "planner/reshard/plan_reshard.h"
#include "tests/benchmark/models.h"
#include "worker/executor/prepared_part.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

class AllDone final : public TaskObserver {
 public:
  explicit AllDone(size_t tasks) : open_(tasks) {}

  void OnDeviceDone(const TaskKey&, const DeviceReport& report) override {
    CHECK_OK(report.status);
  }
  void OnTaskDone(const TaskReport& report) override {
    CHECK_OK(report.status);
    MutexLock lock(mutex_);
    --open_;
    changed_.Signal();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (open_ > 0) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t open_ ABSL_GUARDED_BY(mutex_);
};

uint64_t NextOperation() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void Bind(const PlanRun& run, size_t worker, TaskSpec& spec) {
  const TensorTable& tensors = run.plan.tensors();
  for (size_t i = 0; i < run.workers.size(); ++i) {
    spec.peers.push_back(
        {.worker = absl::StrCat("worker-", i), .address = run.workers[i]->address()});
    for (const DeviceId& device : run.devices_of_worker[i]) {
      const DeviceRank rank = *tensors.FindDevice(device);
      if (i != worker) {
        spec.peer_of_device[rank] = static_cast<int32_t>(i);
      } else if (tensors.replica_of(rank) >= 0) {
        spec.destinations[rank] = {.tensor = {run.destination}};
      } else {
        spec.sources[rank] = {.tensor = {run.source}};
      }
    }
  }
}

}  // namespace

BenchmarkWorker::BenchmarkWorker(const DataTransportOptions& options) {
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create(clock_, {});
  CHECK_OK(loop);
  loop_ = *std::move(loop);
  executor_ = Executor::Create(*loop_, {});
  absl::StatusOr<std::unique_ptr<Transport>> transport = MakeDataTransport(options, *executor_);
  CHECK_OK(transport);
  transport_ = *std::move(transport);
  CHECK_OK(executor_->Attach(*transport_));
  loop_->AddSource(*transport_);
  loop_->Start();
}

Plan PlanOfOneTensor(const std::string& to, int64_t bytes) {
  const Mesh source = *ParseMesh("on a.0");
  const Mesh destination = *ParseMesh("on " + to);
  const LayoutRules rules = *LayoutRules::Parse("* [...]");
  absl::StatusOr<TensorTable> tensors =
      BuildReshardTensors(OneMatrix(1, bytes / 4), {.mesh = source, .rules = rules},
                          {.mesh = destination, .rules = rules}, {});
  CHECK_OK(tensors);
  absl::StatusOr<Plan> plan =
      PlanReshard({.tensors = std::make_shared<const TensorTable>(*std::move(tensors))});
  CHECK_OK(plan);
  return *std::move(plan);
}

std::shared_ptr<Arena> FilledArena(int64_t bytes, std::byte value) {
  absl::StatusOr<std::shared_ptr<Arena>> arena = Arena::Create("benchmark", ByteCount(bytes));
  CHECK_OK(arena);
  std::ranges::fill((*arena)->bytes(), value);
  return *std::move(arena);
}

void RunPlan(const PlanRun& run) {
  absl::StatusOr<std::vector<WorkerPart>> parts = CutParts(run.plan, run.devices_of_worker);
  CHECK_OK(parts);
  const TaskKey key{.operation = NextOperation(), .epoch = 1};
  AllDone done(run.workers.size());
  for (size_t i = 0; i < run.workers.size(); ++i) {
    TaskSpec spec{.key = key, .token_high = 1, .token_low = 2, .checksums = run.checksums};
    absl::StatusOr<std::shared_ptr<const PreparedPart>> part =
        PreparedPart::Create(std::make_shared<const WorkerPart>(std::move((*parts)[i])));
    CHECK_OK(part);
    spec.part = *std::move(part);
    Bind(run, i, spec);
    Executor& executor = run.workers[i]->executor();
    run.workers[i]->loop().Post([&executor, &done, spec = std::move(spec)]() mutable {
      CHECK_OK(executor.Start(std::move(spec), done));
    });
  }
  done.Wait();
}

}  // namespace crossmesh
