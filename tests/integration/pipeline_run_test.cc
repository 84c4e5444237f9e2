// Planned pipelines as programs on real executors, computed by rehearsals, which look at every byte
// that comes in. CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/status_matchers.h"
#include "controller/dispatch/worker_programs.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/planned_pipeline.h"
#include "worker/executor/executor.h"
#include "worker/executor/testing/random_case.h"
#include "worker/pipeline/rehearsal.h"
#include "worker/pipeline/running_program.h"
#include "worker/transport/testing/inprocess_fabric.h"
#include "worker/transport/testing/inprocess_transport.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using Report = v1::RunProgramResponse::IterationReport;

// Hears of one program, for the thread of the test.
class Listener final : public ProgramObserver {
 public:
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
  std::deque<Report> reports_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// A worker without a daemon, and its program.
struct TestWorker {
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Executor> executor;
  Listener listener;
  std::unique_ptr<RunningProgram> program;
  std::vector<Thread> ranks;
};

class PipelineRunTest : public testing::Test {
 protected:
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
                     std::optional<int64_t> complete_iteration = std::nullopt) {
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
                       .complete_iteration = complete_iteration};
    for (size_t i = 0; i < workers_.size(); ++i) {
      start.peers.push_back({.worker = absl::StrCat("w", i),
                             .data_address = workers_[i]->transport->address(),
                             .devices = devices[i]});
    }
    for (size_t i = 0; i < workers_.size(); ++i) {
      TestWorker& worker = *workers_[i];
      ASSERT_OK_AND_ASSIGN(WorkerProgram program, FromProto(programs[i].message));
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
    return std::ranges::all_of(memories_, [](const auto& memory) { return memory.expired(); });
  }

  std::vector<std::weak_ptr<const ProgramMemory>> memories_;
  const RealClock clock_{};
  std::unique_ptr<InProcessFabric> fabric_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
  uint64_t operations_ = 0;
};

void AddHost(v1::PipelineSpec& spec, int32_t rank) {
  v1::Host& host = *spec.mutable_topology()->add_hosts();
  host.set_name(absl::StrCat("n", rank));
  v1::Nic& nic = *host.add_nics();
  nic.set_name("eth0");
  nic.set_out_bytes_per_second(1e9);
  nic.set_in_bytes_per_second(1e9);
}

// Ranks of one to three devices, together at least three, hosts n0, n1, ...; times of some tenth of
// a millisecond.
v1::PipelineSpec RandomSpec(RandomSource& random) {
  v1::PipelineSpec spec;
  const auto ranks = static_cast<int32_t>(random.Between(2, 4));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const int64_t devices = random.Between(rank == 0 ? 2 : 1, 3);
    v1::Mesh& mesh = *spec.add_ranks()->mutable_inline_mesh();
    mesh.set_axes(absl::StrCat("x=", devices));
    mesh.set_devices(absl::StrCat("n", rank, ".0-", devices - 1));
    v1::PipelineStage& stage = *spec.add_stages();
    stage.set_rank(rank);
    stage.set_forward_seconds(static_cast<double>(random.Between(1, 4)) * 1e-4);
    stage.set_input_gradient_seconds(static_cast<double>(random.Between(1, 4)) * 1e-4);
    stage.set_weight_gradient_seconds(static_cast<double>(random.Between(1, 4)) * 1e-4);
    AddHost(spec, rank);
  }
  for (int32_t from = 0; from < ranks; ++from) {
    for (int32_t to = from + 1; to < ranks; ++to) {
      if (to > from + 1 && !random.OneIn(3)) continue;
      v1::PipelineEdge& edge = *spec.add_edges();
      edge.set_from(from);
      edge.set_to(to);
      const int64_t tensors = random.Between(1, 2);
      for (int64_t t = 0; t < tensors; ++t) {
        static const std::vector<std::string> kLayouts = {"[x, -]", "[-, x]", "[-, -]"};
        v1::PipelineTensor& tensor = *edge.add_tensors();
        tensor.mutable_tensor()->set_name(absl::StrCat("t", t));
        tensor.mutable_tensor()->set_dtype("F32");
        tensor.mutable_tensor()->add_shape(12);
        tensor.mutable_tensor()->add_shape(6 * random.Between(1, 4000));
        tensor.set_batch_dimension(0);
        tensor.set_source_layout(random.Pick(kLayouts));
        tensor.set_destination_layout(random.Pick(kLayouts));
      }
    }
  }
  v1::PipelineMicrobatches& many = *spec.add_microbatches();
  many.set_count(static_cast<int32_t>(random.Between(1, 6)));
  many.set_samples(12);
  if (random.OneIn(4)) {
    spec.set_sequence_parts(static_cast<int32_t>(random.Between(2, 3)));
    many.set_count(many.count() * spec.sequence_parts());
  } else if (random.OneIn(2)) {
    v1::PipelineMicrobatches& last = *spec.add_microbatches();
    last.set_count(1);
    last.set_samples(6);
  }
  return spec;
}

v1::PipelineChoice RandomChoice(RandomSource& random, const v1::PipelineSpec& spec) {
  static const std::vector<std::string> kSchedules = {"1f1b", "eager_1f1b", "gpipe", "zb_h1"};
  v1::PipelineChoice choice;
  choice.set_schedule(spec.sequence_parts() > 1 ? "sequence_split" : random.Pick(kSchedules));
  choice.set_delay_weight_gradients(random.OneIn(2));
  if (random.OneIn(4)) choice.set_transfer_model("blocking");
  return choice;
}

std::shared_ptr<const PlannedPipeline> PlanOf(const v1::PipelineSpec& spec,
                                              const v1::PipelineChoice& choice) {
  auto description = FromProto(spec, std::vector<std::shared_ptr<const Mesh>>(spec.ranks_size()));
  CHECK_OK(description);
  auto planned = PlanPipeline(*std::move(description), choice);
  CHECK_OK(planned);
  return *std::move(planned);
}

// At least one for each worker.
std::vector<std::vector<DeviceId>> DealDevicesOf(const PlannedPipeline& planned, size_t workers,
                                                 RandomSource& random) {
  std::vector<DeviceId> all;
  for (const auto& rank : planned.description.ranks) {
    all.insert(all.end(), rank.mesh->devices().begin(), rank.mesh->devices().end());
  }
  random.Shuffle(all);
  std::vector<std::vector<DeviceId>> devices(workers);
  for (size_t i = 0; i < all.size(); ++i) {
    devices[i < workers ? i : random.Below(static_cast<int64_t>(workers))].push_back(all[i]);
  }
  return devices;
}

TEST_F(PipelineRunTest, EveryIterationOfARandomPipelineIsComplete) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = FromEnvironment("CROSSMESH_CASES", 60);
  AddWorkers(3, {.seed = 7, .delay_probability = 0.1, .reorder_channels = true});
  for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    const v1::PipelineSpec spec = RandomSpec(random);
    const auto planned = PlanOf(spec, RandomChoice(random, spec));
    const auto devices = DealDevicesOf(*planned, workers_.size(), random);
    ASSERT_NO_FATAL_FAILURE(StartPrograms(*planned, devices, !random.OneIn(3)));
    ComputeAll();
    for (int64_t iteration = 0; iteration < 3; ++iteration) {
      BeginIteration(iteration);
      for (const auto& worker : workers_) {
        const Report report = worker->listener.NextReport();
        EXPECT_EQ(report.code(), 0) << report.message();
        EXPECT_EQ(report.iteration(), iteration);
        for (const auto& rank : report.ops()) {
          for (int op = 0; op < rank.begin_ns_size(); ++op) {
            EXPECT_GT(rank.begin_ns(op), 0);
            EXPECT_GE(rank.end_ns(op), rank.begin_ns(op));
          }
        }
      }
    }
    Stop(HasFailure() ? absl::CancelledError("it hangs") : absl::OkStatus());
    for (const auto& worker : workers_) {
      if (HasFailure()) ADD_FAILURE() << worker->listener.NextReport().ShortDebugString();
    }
  }
}

// Two ranks on two workers, with time enough to be disturbed.
v1::PipelineSpec TwoRanks(double seconds = 0.002) {
  v1::PipelineSpec spec;
  for (int32_t rank = 0; rank < 2; ++rank) {
    v1::Mesh& mesh = *spec.add_ranks()->mutable_inline_mesh();
    mesh.set_axes("x=2");
    mesh.set_devices(absl::StrCat("n", rank, ".0-1"));
    v1::PipelineStage& stage = *spec.add_stages();
    stage.set_rank(rank);
    stage.set_forward_seconds(seconds);
    stage.set_input_gradient_seconds(seconds);
    stage.set_weight_gradient_seconds(seconds);
    AddHost(spec, rank);
  }
  v1::PipelineEdge& edge = *spec.add_edges();
  edge.set_to(1);
  v1::PipelineTensor& tensor = *edge.add_tensors();
  tensor.mutable_tensor()->set_name("hidden");
  tensor.mutable_tensor()->set_dtype("F32");
  tensor.mutable_tensor()->add_shape(256);
  tensor.mutable_tensor()->add_shape(256);
  tensor.set_source_layout("[x, -]");
  tensor.set_destination_layout("[-, x]");
  v1::PipelineMicrobatches& many = *spec.add_microbatches();
  many.set_count(8);
  many.set_samples(1);
  return spec;
}

class TwoRanksTest : public PipelineRunTest {
 protected:
  void StartTwo(const v1::PipelineSpec& spec = TwoRanks(),
                std::optional<int64_t> complete_iteration = std::nullopt) {
    v1::PipelineChoice choice;
    choice.set_schedule("1f1b");
    planned_ = PlanOf(spec, choice);
    devices_.clear();
    for (const auto& rank : planned_->description.ranks) devices_.push_back(rank.mesh->devices());
    StartPrograms(*planned_, devices_, true, absl::Seconds(20), complete_iteration);
  }

  std::shared_ptr<const PlannedPipeline> planned_;
  std::vector<std::vector<DeviceId>> devices_;
};

TEST_F(TwoRanksTest, ACutLinkFailsTheIterationAndTheNextOneRuns) {
  AddWorkers(2);
  ASSERT_NO_FATAL_FAILURE(StartTwo());
  // The first worker computes by hand, so that the test knows when.
  TestWorker& first = *workers_[0];
  TestWorker& second = *workers_[1];
  Compute(second);
  RankQueue& queue = *first.program->queues()[0];
  BeginIteration(0);
  const PipelineStep step = queue.Next();
  ASSERT_EQ(step.kind, PipelineStep::Kind::kOp);
  fabric_->Cut(first.transport->address(), second.transport->address());
  const Report report = second.listener.NextReport();
  EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(report.message(), HasSubstr("microbatch 0 of "));
  EXPECT_THAT(report.message(), HasSubstr("w0"));
  EXPECT_EQ(report.positions(0), "rank 1: 1F0 waits for microbatch 0 of 0>1");
  Thread user("user", [&queue, &step] {
    EXPECT_EQ(ToString(step.op->op), "0F0");
    queue.Done();
    EXPECT_EQ(queue.Next().kind, PipelineStep::Kind::kOver);
  });
  Stop(absl::CancelledError("iteration 0 failed"));
  user.Join();
  // Programs of another operation on the same workers.
  ASSERT_NO_FATAL_FAILURE(StartTwo());
  ComputeAll();
  BeginIteration(1);
  Listener* const listeners[] = {&first.listener, &second.listener};
  for (Listener* const listener : listeners) {
    Report next = listener->NextReport();
    // What the first worker said of the iteration that failed comes first.
    if (next.iteration() == 0) next = listener->NextReport();
    EXPECT_EQ(next.code(), 0) << next.message();
  }
  Stop(absl::OkStatus());
  EXPECT_TRUE(AllMemoryIsBack());
}

// It may have been cut off before it heard so.
TEST_F(TwoRanksTest, AProcessIsToldAgainWhatIsComplete) {
  AddWorkers(2);
  ASSERT_NO_FATAL_FAILURE(StartTwo(TwoRanks(), /*complete_iteration=*/4));
  RankQueue& queue = *workers_[0]->program->queues()[0];
  const PipelineStep step = queue.Next();
  EXPECT_EQ(step.kind, PipelineStep::Kind::kComplete);
  EXPECT_EQ(step.iteration, 4);
  Stop(absl::OkStatus());
  EXPECT_EQ(queue.Next().kind, PipelineStep::Kind::kOver);
}

TEST_F(TwoRanksTest, AProcessThatNeverAnswersIsNamed) {
  AddWorkers(2);
  ASSERT_NO_FATAL_FAILURE(StartTwo());
  TestWorker& second = *workers_[1];
  Compute(second);
  RankQueue& queue = *workers_[0]->program->queues()[0];
  BeginIteration(0);
  ASSERT_EQ(queue.Next().kind, PipelineStep::Kind::kOp);
  Stop(absl::CancelledError("too late"));
  const Report report = workers_[0]->listener.NextReport();
  EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_EQ(report.positions(0), "rank 0: computes 0F0");
  queue.Done();  // comes too late, and harms nobody
}

TEST_F(TwoRanksTest, AnOpThatFailsFailsTheIteration) {
  AddWorkers(2);
  ASSERT_NO_FATAL_FAILURE(StartTwo());
  workers_[1]->ranks.emplace_back(
      "rank", [queue = workers_[1]->program->queues()[0]] { Rehearse(*queue); });
  RankQueue& queue = *workers_[0]->program->queues()[0];
  BeginIteration(0);
  queue.Next();
  queue.Fail(absl::InternalError("a number that is none"));
  const Report report = workers_[0]->listener.NextReport();
  EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_EQ(report.message(), "rank 0: computes 0F0: a number that is none");
  Stop(absl::CancelledError(report.message()));
}

TEST_F(TwoRanksTest, AProcessThatLeavesFailsTheIteration) {
  AddWorkers(2);
  ASSERT_NO_FATAL_FAILURE(StartTwo());
  workers_[1]->ranks.emplace_back(
      "rank", [queue = workers_[1]->program->queues()[0]] { Rehearse(*queue); });
  std::unique_ptr<PipelineLoop> loop = MakePipelineLoop(workers_[0]->program->queues()[0]);
  BeginIteration(0);
  loop->Next();
  loop.reset();
  const Report report = workers_[0]->listener.NextReport();
  EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_THAT(report.message(), HasSubstr("computes 0F0: the process has left"));
  Stop(absl::CancelledError(report.message()));
}

// What one computes another gets, in its layout.
TEST_F(TwoRanksTest, TensorsArriveAsTheLayoutsSay) {
  AddWorkers(2);
  ASSERT_NO_FATAL_FAILURE(StartTwo());
  constexpr int64_t kSide = 256;
  const auto value = [](MicrobatchIndex m, int64_t row, int64_t column) {
    return static_cast<float>(m * kSide * kSide + row * kSide + column);
  };
  Thread first("first", [&] {
    RankQueue& queue = *workers_[0]->program->queues()[0];
    for (PipelineStep step = queue.Next(); step.kind != PipelineStep::Kind::kOver;
         step = queue.Next()) {
      if (step.kind != PipelineStep::Kind::kOp) continue;
      for (const PipelineTensor& tensor : step.op->outputs) {
        EXPECT_EQ(tensor.name, "hidden");
        EXPECT_EQ(tensor.other_stage, 1);
        for (size_t device = 0; device < tensor.tiles.size(); ++device) {
          auto* const rows = reinterpret_cast<float*>(tensor.tiles[device].bytes.data());
          for (int64_t i = 0; i < kSide / 2 * kSide; ++i) {
            rows[i] = value(step.op->op.microbatch,
                            static_cast<int64_t>(device) * kSide / 2 + i / kSide, i % kSide);
          }
        }
      }
      queue.Done();
    }
  });
  Thread second("second", [&] {
    RankQueue& queue = *workers_[1]->program->queues()[0];
    for (PipelineStep step = queue.Next(); step.kind != PipelineStep::Kind::kOver;
         step = queue.Next()) {
      if (step.kind != PipelineStep::Kind::kOp) continue;
      int64_t wrong = 0;
      for (const PipelineTensor& tensor : step.op->inputs) {
        for (size_t device = 0; device < tensor.tiles.size(); ++device) {
          const auto* const columns =
              reinterpret_cast<const float*>(tensor.tiles[device].bytes.data());
          for (int64_t i = 0; i < kSide * kSide / 2; ++i) {
            const float expected =
                value(step.op->op.microbatch, i / (kSide / 2),
                      static_cast<int64_t>(device) * kSide / 2 + i % (kSide / 2));
            wrong += columns[i] == expected ? 0 : 1;
          }
        }
      }
      EXPECT_EQ(wrong, 0) << step.op->op;
      queue.Done();
    }
  });
  for (int64_t iteration = 0; iteration < 2; ++iteration) {
    BeginIteration(iteration);
    for (const auto& worker : workers_) EXPECT_EQ(worker->listener.NextReport().code(), 0);
  }
  Stop(absl::OkStatus());
}

}  // namespace
}  // namespace crossmesh
