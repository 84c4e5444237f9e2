#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/status_matchers.h"
#include "controller/dispatch/worker_programs.h"
#include "crossmesh/v1/pipeline.pb.h"
#include "planner/pipeline/planning/planned_pipeline.h"
#include "worker/executor/executor.h"
#include "worker/memory/arena.h"
#include "worker/memory/memory_budget.h"
#include "worker/pipeline/rehearsal.h"
#include "worker/pipeline/running_program.h"
#include "worker/pipeline/transfer_memory.h"
#include "worker/transport/testing/inprocess_fabric.h"
#include "worker/transport/testing/inprocess_transport.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

// Hears of one program, for the thread of the test.
class ProgramListener final : public ProgramObserver {
 public:
  using Report = v1::RunProgramResponse::IterationReport;

  void OnReady(const absl::Status& status) override {
    MutexLock lock(mutex_);
    // With a text of its own: copies share one, counted inside a library that ThreadSanitizer does
    // not see into.
    ready_.emplace_back(status.code(), status.message());
    changed_.Signal();
  }
  void OnReport(const Report& report) override {
    MutexLock lock(mutex_);
    reports_.push_back(report);
    changed_.Signal();
  }
  void OnStopped() override {
    MutexLock lock(mutex_);
    stopped_ = true;
    changed_.Signal();
  }
  // DeadlineExceeded when nothing comes for a long time.
  absl::Status NextReady() {
    MutexLock lock(mutex_);
    while (ready_.empty()) {
      if (changed_.WaitFor(mutex_, absl::Seconds(30))) {
        return absl::DeadlineExceededError("the program is not ready");
      }
    }
    const absl::Status status = ready_.front();
    ready_.pop_front();
    return status;
  }
  // What came before.
  bool IsReady() {
    MutexLock lock(mutex_);
    return !ready_.empty();
  }
  // One of no iteration when none comes for a long time.
  Report NextReport() {
    MutexLock lock(mutex_);
    while (reports_.empty()) {
      if (changed_.WaitFor(mutex_, absl::Seconds(30))) return NoReport();
    }
    Report report = std::move(reports_.front());
    reports_.pop_front();
    return report;
  }
  static Report NoReport() {
    Report report;
    report.set_iteration(-1);
    report.set_code(static_cast<int>(absl::StatusCode::kDeadlineExceeded));
    return report;
  }
  void WaitUntilStopped() {
    MutexLock lock(mutex_);
    while (!stopped_) changed_.Wait(mutex_);
    stopped_ = false;  // the next program's
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<absl::Status> ready_ ABSL_GUARDED_BY(mutex_);
  std::deque<Report> reports_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// A worker without a daemon, and its program.
struct TestWorker {
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Executor> executor;
  ProgramListener listener;
  std::unique_ptr<RunningProgram> program;
  std::vector<Thread> ranks;
};

// Workers of one process, and one program after the other on them.
class PipelineRunTest : public testing::Test {
 protected:
  using Report = ProgramListener::Report;

  ~PipelineRunTest() override {
    for (const auto& worker : workers_) worker->loop->Stop();
  }

  void AddWorkers(size_t count, const FaultPlan& faults = {}) {
    fabric_ = std::make_unique<InProcessFabric>(faults);
    for (size_t i = 0; i < count; ++i) {
      auto worker = std::make_unique<TestWorker>();
      worker->loop = *EventLoop::Create(clock_, {.name = absl::StrCat("w", i)});
      worker->executor = Executor::Create(*worker->loop, {});
      worker->transport = *InProcessTransport::Create(*fabric_, *worker->executor);
      ASSERT_OK(worker->executor->Attach(*worker->transport));
      worker->loop->AddSource(*worker->transport);
      worker->loop->Start();
      workers_.push_back(std::move(worker));
    }
  }

  // `devices`: of each worker.
  void StartPrograms(const PlannedPipeline& planned,
                     const std::vector<std::vector<DeviceId>>& devices, bool checksums = true,
                     absl::Duration stall_limit = absl::Seconds(20),
                     std::optional<int64_t> complete_iteration = std::nullopt,
                     const std::vector<RankIndex>& lost_ranks = {}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<PlannedProgram> programs,
                         MakeWorkerPrograms(planned, devices));
    ProgramStart start{.run_id = "pr-1",
                       .operation = ++operations_,
                       .epoch = 1,
                       .token_high = 3,
                       .token_low = operations_,
                       .checksums = checksums,
                       .rehearsal = true,
                       .stall_limit = stall_limit,
                       .complete_iteration = complete_iteration,
                       .lost_ranks = lost_ranks};
    for (size_t i = 0; i < workers_.size(); ++i) {
      start.peers.push_back({.worker = absl::StrCat("w", i),
                             .data_address = workers_[i]->transport->address(),
                             .devices = devices[i]});
    }
    for (size_t i = 0; i < workers_.size(); ++i) {
      TestWorker& worker = *workers_[i];
      ASSERT_OK_AND_ASSIGN(WorkerProgram program, FromProto(programs[i].message, "test", budget_));
      ASSERT_OK_AND_ASSIGN(
          std::shared_ptr<const ProgramMemory> memory,
          ProgramMemory::Create(std::make_shared<const WorkerProgram>(std::move(program)),
                                [](const DeviceId& /*device*/, ByteCount bytes) {
                                  return Arena::Create("test", bytes);
                                }));
      memories_.push_back(memory);
      worker.program = std::make_unique<RunningProgram>(
          RunningProgram::Ports{.data = *worker.loop,
                                .runner = worker.executor->replays(),
                                .listener = worker.listener},
          absl::StrCat("w", i), start, std::move(memory));
      worker.loop->RunAndWait([&] { EXPECT_OK(worker.program->Open()); });
    }
  }

  // Rehearsals compute the ranks of a worker, or of all.
  static void Compute(TestWorker& worker) {
    for (const auto& queue : worker.program->queues()) {
      worker.ranks.emplace_back("rank", [queue] { Rehearse(*queue); });
    }
  }
  void ComputeAll() {
    for (const auto& worker : workers_) Compute(*worker);
  }

  void BeginIteration(int64_t iteration) {
    for (const auto& worker : workers_) {
      worker->loop->RunAndWait([&] { EXPECT_OK(worker->program->BeginIteration(iteration)); });
    }
  }

  void Stop(const absl::Status& why) {
    for (const auto& worker : workers_) {
      worker->loop->RunAndWait([&] { worker->program->Stop(why); });
    }
    for (const auto& worker : workers_) {
      worker->listener.WaitUntilStopped();
      worker->ranks.clear();
    }
  }

  // Is the memory of all programs given back?
  bool AllMemoryIsBack() {
    for (const auto& worker : workers_) worker->program.reset();
    return budget_.used_bytes() == 0 &&
           std::ranges::all_of(memories_, [](const auto& memory) { return memory.expired(); });
  }

  MemoryBudget budget_{ByteCount(int64_t{1} << 40)};
  std::vector<std::weak_ptr<const ProgramMemory>> memories_;
  const RealClock clock_;
  std::unique_ptr<InProcessFabric> fabric_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
  uint64_t operations_ = 0;
};

// The next rank, on host n0, n1, ..., with a stage of these seconds: forward, and the gradients of
// inputs and weights.
inline void AddRank(v1::PipelineSpec& spec, int64_t devices, const std::array<double, 3>& seconds) {
  const int32_t rank = spec.ranks_size();
  v1::Mesh& mesh = *spec.add_ranks()->mutable_inline_mesh();
  mesh.set_axes(absl::StrCat("x=", devices));
  mesh.set_devices(absl::StrCat("n", rank, ".0-", devices - 1));
  v1::PipelineStage& stage = *spec.add_stages();
  stage.set_rank(rank);
  stage.set_forward_seconds(seconds[0]);
  stage.set_input_gradient_seconds(seconds[1]);
  stage.set_weight_gradient_seconds(seconds[2]);
  v1::Host& host = *spec.mutable_topology()->add_hosts();
  host.set_name(absl::StrCat("n", rank));
  v1::Nic& nic = *host.add_nics();
  nic.set_name("eth0");
  nic.set_out_bytes_per_second(1e9);
  nic.set_in_bytes_per_second(1e9);
}

// Of F32, cut into samples in its first dimension.
inline v1::PipelineTensor& AddTensor(v1::PipelineEdge& edge, const std::string& name, int64_t rows,
                                     int64_t columns) {
  v1::PipelineTensor& tensor = *edge.add_tensors();
  tensor.mutable_tensor()->set_name(name);
  tensor.mutable_tensor()->set_dtype("F32");
  tensor.mutable_tensor()->add_shape(rows);
  tensor.mutable_tensor()->add_shape(columns);
  return tensor;
}

}  // namespace crossmesh
