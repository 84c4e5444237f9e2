#pragma once

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/status_matchers.h"
#include "controller/dispatch/worker_programs.h"
#include "crossmesh/v1/pipeline.pb.h"
#include "planner/pipeline/planning/planned_pipeline.h"
#include "tests/integration/program_listener.h"
#include "worker/courses/course_replayer.h"
#include "worker/executor/executor.h"
#include "worker/executor/replay_runner.h"
#include "worker/memory/arena.h"
#include "worker/memory/memory_budget.h"
#include "worker/pipeline/rehearsal.h"
#include "worker/pipeline/running_program.h"
#include "worker/pipeline/transfer_memory.h"
#include "worker/transport/testing/inprocess_fabric.h"
#include "worker/transport/testing/inprocess_transport.h"
#include "worker/transport/transport.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

// A worker without a daemon, and its program.
struct TestWorker {
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Executor> executor;
  CourseCounters counters;
  std::unique_ptr<CourseReplayer> replayer;
  ProgramListener listener;
  ProgramObserver* observer = &listener;  // of its programs
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

  using MakeTransport =
      absl::FunctionRef<absl::StatusOr<std::unique_ptr<Transport>>(TransportSink& sink)>;

  void AddWorkers(size_t count, const FaultPlan& faults = {}) {
    fabric_ = std::make_unique<InProcessFabric>(faults);
    AddWorkers(count,
               [this](TransportSink& sink) { return InProcessTransport::Create(*fabric_, sink); });
  }
  void AddWorkers(size_t count, MakeTransport make_transport) {
    for (size_t i = 0; i < count; ++i) {
      auto worker = std::make_unique<TestWorker>();
      worker->loop = *EventLoop::Create(clock_, {.name = absl::StrCat("w", i)});
      worker->executor = Executor::Create(*worker->loop, {});
      ASSERT_OK_AND_ASSIGN(worker->transport, make_transport(*worker->executor));
      ASSERT_OK(worker->executor->Attach(*worker->transport));
      worker->replayer = std::make_unique<CourseReplayer>(
          CourseReplayer::Ports{.loop = *worker->loop,
                                .others = worker->executor->replays(),
                                .counters = worker->counters});
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
    ASSERT_OK_AND_ASSIGN(const std::vector<PlannedProgram> planned_programs,
                         MakeWorkerPrograms(planned, devices));
    std::vector<WorkerProgram> programs;
    for (const PlannedProgram& program : planned_programs) {
      ASSERT_OK_AND_ASSIGN(programs.emplace_back(), FromProto(program.message, "test", budget_));
    }
    StartPrograms(std::move(programs), devices,
                  {.checksums = checksums,
                   .stall_limit = stall_limit,
                   .complete_iteration = complete_iteration,
                   .lost_ranks = lost_ranks});
  }

  // One program for each worker.
  void StartPrograms(std::vector<WorkerProgram> programs,
                     const std::vector<std::vector<DeviceId>>& devices, ProgramStart start) {
    start.run_id = "pr-1";
    start.operation = ++operations_;
    start.epoch = 1;
    start.token_high = 3;
    start.token_low = operations_;
    start.rehearsal = true;
    for (size_t i = 0; i < workers_.size(); ++i) {
      start.peers.push_back({.worker = absl::StrCat("w", i),
                             .data_address = workers_[i]->transport->address(),
                             .devices = devices[i]});
    }
    for (size_t i = 0; i < workers_.size(); ++i) {
      TestWorker& worker = *workers_[i];
      ASSERT_OK_AND_ASSIGN(
          std::shared_ptr<const ProgramMemory> memory,
          ProgramMemory::Create(std::make_shared<const WorkerProgram>(std::move(programs[i])),
                                [&](const DeviceId& /*device*/, ByteCount bytes) {
                                  return MakeArena(worker, bytes);
                                }));
      memories_.push_back(memory);
      worker.program =
          std::make_unique<RunningProgram>(RunningProgram::Ports{.data = *worker.loop,
                                                                 .replayer = *worker.replayer,
                                                                 .clock = clock_,
                                                                 .listener = *worker.observer},
                                           absl::StrCat("w", i), start, std::move(memory));
      worker.loop->RunAndWait([&] { EXPECT_OK(worker.program->Open()); });
    }
  }

  // Of a program's messages at a worker.
  virtual absl::StatusOr<std::shared_ptr<Arena>> MakeArena(TestWorker& /*worker*/,
                                                           ByteCount bytes) {
    return Arena::Create("test", bytes);
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
