// Pipelines with fused pairs, as programs on real executors.

#include "common/plan/testing/for_each_seed.h"
#include "controller/dispatch/iteration_measurement.h"
#include "planner/pipeline/formats/schedule_file.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"
#include "planner/pipeline/testing/random_pipeline.h"
#include "planner/pipeline/transfer_model.h"
#include "tests/integration/pipeline_run_fixture.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr StageIndex kStages = 4;
constexpr MicrobatchIndex kMicrobatches = 8;

// Four stages down two ranks and up again, with ops of a tenth of a millisecond.
v1::PipelineSpec QuickDownAndUp(bool has_pairs) {
  v1::PipelineSpec spec = DownAndUp(kMicrobatches, has_pairs ? 1 : 0);
  for (v1::PipelineStage& stage : *spec.mutable_stages()) {
    stage.set_forward_seconds(1e-4);
    stage.set_input_gradient_seconds(1e-4);
    stage.set_weight_gradient_seconds(1e-4);
  }
  for (v1::PipelinePair& pair : *spec.mutable_pairs()) pair.set_seconds(2.2e-4);
  for (v1::PipelineEdge& edge : *spec.mutable_edges()) {
    edge.mutable_tensors(0)->mutable_tensor()->set_shape(1, 256);
  }
  return spec;
}

float GivenBy(StageIndex stage, float input) { return 3 * input + static_cast<float>(stage); }
float GradientOf(float gradient, float activation) { return 2 * gradient + activation; }
float BatchOf(MicrobatchIndex m, int64_t iteration) {
  return static_cast<float>(100 * iteration + m + 1);
}

// By op: what it gives. Backward ops are whole here, though some give the gradient of the weights
// by another op.
using Results = std::map<Op, float>;

Results ExpectedOf(int64_t iteration) {
  Results results;
  for (MicrobatchIndex m = 0; m < kMicrobatches; ++m) {
    float passed = BatchOf(m, iteration), gradient = 0;
    for (StageIndex stage = 0; stage < kStages; ++stage) {
      passed = results[{OpKind::kForward, stage, m}] = GivenBy(stage, passed);
    }
    for (StageIndex stage = kStages - 1; stage >= 0; --stage) {
      const float activation = results[{OpKind::kForward, stage, m}];
      gradient = results[{OpKind::kBackward, stage, m}] = GradientOf(gradient, activation);
    }
  }
  return results;
}

// A process that computes a rank with numbers, of which every tensor is full.
class Process {
 public:
  explicit Process(bool knows_pairs = true) : knows_pairs_(knows_pairs) {}

  void Run(RankQueue& queue) {
    using Kind = PipelineStep::Kind;
    for (PipelineStep step = queue.Next(); step.kind != Kind::kOver; step = queue.Next()) {
      if (step.kind == Kind::kComplete || (step.kind == Kind::kPair && !knows_pairs_)) continue;
      Compute(*step.op);
      if (step.kind == Kind::kPair) Compute(*step.backward), ++pairs_;
      queue.Done();
    }
  }

  // When it has run.
  const Results& results() const { return results_; }  // of the last iteration
  int pairs() const { return pairs_; }

 private:
  void Compute(const PipelineOp& given) {
    const auto [kind, stage, m, is_fused] = given.op;
    if (kind == OpKind::kWeightGradient) return;
    // Nothing comes in at the ends, and from a stage of the same rank.
    const std::optional<float> input = Read(given);
    float result = 0;
    if (kind == OpKind::kForward) {
      const Op last = {kind, stage - 1, m};
      const float before = results_.contains(last) ? results_[last] : BatchOf(m, given.iteration);
      result = results_[{kind, stage, m}] = GivenBy(stage, input.value_or(before));
    } else {
      const Op next = {OpKind::kBackward, stage + 1, m};
      const float after = results_.contains(next) ? results_[next] : 0;
      result = results_[{OpKind::kBackward, stage, m}] =
          GradientOf(input.value_or(after), results_[{OpKind::kForward, stage, m}]);
    }
    for (const PipelineTensor& output : given.outputs) {
      for (const PipelineTensor::Tile& tile : output.tiles) {
        std::ranges::fill(FloatsOf(tile), result);
      }
    }
  }

  static std::optional<float> Read(const PipelineOp& op) {
    std::optional<float> read;
    for (const PipelineTensor& input : op.inputs) {
      for (const PipelineTensor::Tile& tile : input.tiles) {
        for (const float element : FloatsOf(tile)) {
          EXPECT_EQ(element, read.value_or(element)) << op.op;
          read = element;
        }
      }
    }
    return read;
  }

  static std::span<float> FloatsOf(const PipelineTensor::Tile& tile) {
    return {reinterpret_cast<float*>(tile.bytes.data()), tile.bytes.size() / sizeof(float)};
  }

  const bool knows_pairs_;
  Results results_;
  int pairs_ = 0;
};

// A worker for each host, so that two of them compute a rank.
class FusedPairsRunTest : public PipelineRunTest {
 protected:
  using Processes = std::vector<std::shared_ptr<Process>>;

  void SetUp() override { AddWorkers(4); }

  static std::vector<std::vector<DeviceId>> DevicesByHost(const PlannedPipeline& planned) {
    std::vector<std::vector<DeviceId>> devices;
    for (const auto& rank : planned.description.ranks) {
      for (const DeviceId& device : rank.mesh->devices()) {
        if (devices.empty() || devices.back().back().host != device.host) devices.emplace_back();
        devices.back().push_back(device);
      }
    }
    return devices;
  }

  void ComputeWith(const Processes& processes) {
    for (size_t i = 0; i < workers_.size(); ++i) {
      workers_[i]->ranks.emplace_back(
          "process", [process = processes[i], queue = workers_[i]->program->queues()[0]] {
            process->Run(*queue);
          });
    }
  }

  std::vector<WorkerReport> RunIteration(int64_t iteration) {
    std::vector<WorkerReport> reports;
    BeginIteration(iteration);
    for (const auto& worker : workers_) {
      reports.push_back({.report = worker->listener.NextReport()});
      EXPECT_EQ(reports.back().report.code(), 0) << reports.back().report.message();
    }
    return reports;
  }
};

TEST_F(FusedPairsRunTest, ProcessesComputeTheSameWithPairsAsWithoutThem) {
  constexpr int64_t kIterations = 3;
  for (const bool has_pairs : {false, true}) {
    ASSERT_OK_AND_ASSIGN(const PlannedPointer planned,
                         PlanOf(QuickDownAndUp(has_pairs), ChoiceOf("dual_pipe_v")));
    ASSERT_NO_FATAL_FAILURE(StartPrograms(*planned, DevicesByHost(*planned)));
    Processes processes;
    for (size_t i = 0; i < workers_.size(); ++i) processes.push_back(std::make_shared<Process>());
    ComputeWith(processes);
    for (int64_t iteration = 0; iteration < kIterations; ++iteration) RunIteration(iteration);
    Stop(absl::OkStatus());
    const Results expected = ExpectedOf(kIterations - 1);
    for (const auto& process : processes) {
      EXPECT_EQ(process->results().size(), expected.size() / 2);  // of two of the four stages
      for (const auto& [op, result] : process->results()) EXPECT_EQ(result, expected.at(op)) << op;
      if (has_pairs) {
        EXPECT_GT(process->pairs(), 4 * kIterations);
      } else {
        EXPECT_EQ(process->pairs(), 0);
      }
    }
  }
}

TEST_F(FusedPairsRunTest, AProcessThatDoesNotKnowPairsFailsTheIteration) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned,
                       PlanOf(QuickDownAndUp(true), ChoiceOf("dual_pipe_v")));
  ASSERT_NO_FATAL_FAILURE(StartPrograms(*planned, DevicesByHost(*planned)));
  Processes processes = {std::make_shared<Process>(/*knows_pairs=*/false)};
  while (processes.size() < workers_.size()) processes.push_back(std::make_shared<Process>());
  ComputeWith(processes);
  BeginIteration(0);
  const Report report = workers_[0]->listener.NextReport();
  EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(report.message(), AllOf(HasSubstr("rank 0: computes 0F"), HasSubstr("& 3B"),
                                      HasSubstr("went on without an answer")));
  Stop(absl::CancelledError(report.message()));
}

// The ops of a pair begin when the inputs of both are there, and end at once.
TEST_F(FusedPairsRunTest, StepsAreMeasuredInThePlannedOrder) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned,
                       PlanOf(QuickDownAndUp(true), ChoiceOf("dual_pipe_v")));
  ASSERT_NO_FATAL_FAILURE(StartPrograms(*planned, DevicesByHost(*planned)));
  ComputeAll();
  const std::vector<WorkerReport> reports = RunIteration(0);
  Stop(absl::OkStatus());
  const OpTable& ops = *planned->ops;
  for (const WorkerReport& worker : reports) {
    const auto& times = worker.report.ops(0);
    for (int i = 1; i < times.begin_ns_size(); ++i) {
      const OpIndex index = ops.first(times.rank()) + i;
      if (ops.StepOf(index) == index) {
        EXPECT_GE(times.begin_ns(i), times.end_ns(i - 1)) << ops.op(index);
      } else {
        EXPECT_EQ(times.begin_ns(i), times.begin_ns(i - 1)) << ops.op(index);
        EXPECT_EQ(times.end_ns(i), times.end_ns(i - 1)) << ops.op(index);
      }
    }
  }
  const v1::PipelineMeasurement measured = MeasureIteration(*planned, reports);
  std::vector<TimeSpan> spans(ops.size());
  for (const v1::PipelineMeasurement::Rank& rank : measured.ranks()) {
    OpIndex index = ops.first(rank.rank());
    for (int i = 0; i < rank.ops().name_size(); ++i) {
      EXPECT_EQ(rank.ops().name(i), ops.NameOfStep(index));
      for (const OpIndex end = ops.EndOf(index); index < end; ++index) {
        spans[index] = {rank.ops().begin(i), rank.ops().end(i)};
      }
    }
    EXPECT_EQ(index, ops.first(rank.rank() + 1));
  }
  for (OpIndex index = 0; index < ops.size(); ++index) {
    for (const TransferIndex transfer : ops.TransfersInto(ops.op(index))) {
      if (!ops.Passes(transfer)) continue;
      const OpIndex producer = ops.ProducerOf(transfer, ops.op(index).microbatch);
      EXPECT_GE(spans[index].begin, spans[producer].end) << ops.NameOfStep(ops.StepOf(index));
    }
  }
}

// Microbatches of two sizes: pairs of both, and of one with the other.
TEST_F(FusedPairsRunTest, PairsTakeTheTimeThatThePlanHas) {
  v1::PipelineSpec spec = QuickDownAndUp(true);
  spec.mutable_microbatches(0)->set_count(3);
  spec.add_microbatches()->set_count(5);
  spec.mutable_microbatches(1)->set_samples(8);
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, ChoiceOf("dual_pipe_v")));
  ASSERT_OK_AND_ASSIGN(const std::vector<PlannedProgram> programs,
                       MakeWorkerPrograms(*planned, DevicesByHost(*planned)));
  for (const PlannedProgram& of_worker : programs) {
    ASSERT_OK_AND_ASSIGN(const WorkerProgram program,
                         FromProto(of_worker.message, "test", budget_));
    const WorkerProgram::Rank& rank = program.ranks[0];
    const OpIndex first = planned->ops->first(rank.rank);
    for (const WorkerProgram::Action& action : rank.actions) {
      EXPECT_NEAR(rank.ops[action.op].seconds, planned->ops->SecondsOfStep(first + action.op), 1e-9)
          << rank.NameOfStep(action.op);
    }
  }
}

TEST_F(FusedPairsRunTest, RandomPairsRun) {
  ForEachSeed(20, [&](RandomSource& random) {
    const v1::PipelineSpec spec = QuickDownAndUp(true);
    const std::string model(TransferModelName(kAllTransferModels[random.Below(6)]));
    ASSERT_OK_AND_ASSIGN(const PlannedPointer free, PlanOf(spec, ChoiceOf("dual_pipe_v", model)));
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kFull : BackwardForm::kSplit;
    Schedule schedule =
        RandomSchedule(random, free->profile, kMicrobatches, form, /*in_order=*/true);
    FuseRandomOps(random, free->profile, schedule);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, free->profile));
    v1::PipelineChoice choice = ChoiceOf("", model);
    choice.set_schedule_file(*ToScheduleFile(ops));
    ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, choice));
    ASSERT_NO_FATAL_FAILURE(StartPrograms(*planned, DevicesByHost(*planned)));
    ComputeAll();
    for (int64_t iteration = 0; iteration < 2; ++iteration) RunIteration(iteration);
    Stop(HasFailure() ? absl::CancelledError("it hangs") : absl::OkStatus());
  });
}

}  // namespace
}  // namespace crossmesh
