// A pipeline of two ranks on two workers, disturbed in the middle.

#include "planner/pipeline/planning/testing/planned_pipelines.h"
#include "tests/integration/pipeline_run_fixture.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <gmock/gmock.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSide = 256;

// Two ranks on two workers, with time enough to be disturbed.
v1::PipelineSpec TwoRanks() {
  constexpr double kSeconds = 0.002;
  v1::PipelineSpec spec;
  AddRank(spec, 2, {kSeconds, kSeconds, kSeconds});
  AddRank(spec, 2, {kSeconds, kSeconds, kSeconds});
  v1::PipelineEdge& edge = *spec.add_edges();
  edge.set_to(1);
  v1::PipelineTensor& tensor = AddTensor(edge, "hidden", kSide, kSide);
  tensor.set_source_layout("[x, -]");
  tensor.set_destination_layout("[-, x]");
  v1::PipelineMicrobatches& many = *spec.add_microbatches();
  many.set_count(8);
  many.set_samples(1);
  return spec;
}

class TwoRanksTest : public PipelineRunTest {
 protected:
  void SetUp() override {
    AddWorkers(2);
    ASSERT_OK_AND_ASSIGN(planned_, PlanOf(TwoRanks(), ChoiceOf("1f1b")));
    StartTwo();
  }

  void StartTwo(std::optional<int64_t> complete_iteration = std::nullopt,
                const std::vector<RankIndex>& lost_ranks = {}) {
    std::vector<std::vector<DeviceId>> devices;
    for (const auto& rank : planned_->description.ranks) devices.push_back(rank.mesh->devices());
    StartPrograms(*planned_, devices, true, absl::Seconds(20), complete_iteration, lost_ranks);
  }

  TestWorker& first() { return *workers_[0]; }
  TestWorker& second() { return *workers_[1]; }
  static RankQueue& QueueOf(TestWorker& worker) { return *worker.program->queues()[0]; }

  PlannedPointer planned_;
};

TEST_F(TwoRanksTest, ACutLinkFailsTheIterationAndTheNextOneRuns) {
  // The first worker computes by hand, so that the test knows when.
  Compute(second());
  RankQueue& queue = QueueOf(first());
  BeginIteration(0);
  const PipelineStep step = queue.Next();
  ASSERT_EQ(step.kind, PipelineStep::Kind::kOp);
  fabric_->Cut(first().transport->address(), second().transport->address());
  const Report report = second().listener.NextReport();
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
  for (const auto& worker : workers_) {
    Report next = worker->listener.NextReport();
    // What the first worker said of the iteration that failed comes first.
    if (next.iteration() == 0) next = worker->listener.NextReport();
    EXPECT_EQ(next.code(), 0) << next.message();
  }
  Stop(absl::OkStatus());
  EXPECT_TRUE(AllMemoryIsBack());
}

// It may have been cut off before it heard so.
TEST_F(TwoRanksTest, AProcessIsToldAgainWhatIsComplete) {
  Stop(absl::CancelledError("cut off"));
  ASSERT_NO_FATAL_FAILURE(StartTwo(/*complete_iteration=*/4));
  RankQueue& queue = QueueOf(first());
  const PipelineStep step = queue.Next();
  EXPECT_EQ(step.kind, PipelineStep::Kind::kComplete);
  EXPECT_EQ(step.iteration, 4);
  Stop(absl::OkStatus());
  EXPECT_EQ(queue.Next().kind, PipelineStep::Kind::kOver);
}

// Two ranks that are asked whether they go on since rank 1 has lost its state.
class LostStateTest : public TwoRanksTest {
 protected:
  void SetUp() override {
    TwoRanksTest::SetUp();
    Stop(absl::CancelledError("w1 is lost"));
    for (const auto& worker : workers_) EXPECT_OK(worker->listener.NextReady());
    ASSERT_NO_FATAL_FAILURE(StartTwo(/*complete_iteration=*/4, /*lost_ranks=*/{1}));
  }

  static void ExpectAsked(RankQueue& queue) {
    EXPECT_EQ(queue.Next().kind, PipelineStep::Kind::kComplete);
    const PipelineStep step = queue.Next();
    EXPECT_EQ(step.kind, PipelineStep::Kind::kStateLost);
    EXPECT_EQ(step.iteration, 4);
    EXPECT_THAT(step.lost_ranks, ElementsAre(1));
  }
};

TEST_F(LostStateTest, IterationsBeginWhenEveryRankHasSaidThatItGoesOn) {
  ExpectAsked(QueueOf(first()));
  first().loop->RunAndWait([&] {
    EXPECT_FALSE(first().listener.IsReady());
    EXPECT_THAT(first().program->BeginIteration(5),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("all ranks go on")));
  });
  QueueOf(first()).Done();
  Compute(second());  // a rehearsal has no state
  for (const auto& worker : workers_) EXPECT_OK(worker->listener.NextReady());
  Compute(first());
  BeginIteration(5);
  for (const auto& worker : workers_) EXPECT_EQ(worker->listener.NextReport().code(), 0);
  Stop(absl::OkStatus());
}

TEST_F(LostStateTest, ARankThatDoesNotGoOnSaysWhy) {
  ExpectAsked(QueueOf(first()));
  QueueOf(first()).Fail(absl::UnavailableError("no checkpoint of iteration 4"));
  EXPECT_THAT(first().listener.NextReady(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "rank 0 does not go on after the loss of the state of rank 1: no "
                       "checkpoint of iteration 4"));
  Stop(absl::CancelledError("it ends"));
}

// So a process that does not know of the question trains on with nothing that is wrong.
TEST_F(LostStateTest, WithoutAnAnswerARankDoesNotGoOn) {
  RankQueue& queue = QueueOf(first());
  ExpectAsked(queue);
  Thread user("user", [&queue] { EXPECT_EQ(queue.Next().kind, PipelineStep::Kind::kOver); });
  EXPECT_THAT(first().listener.NextReady(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                     HasSubstr("went on without an answer")));
  std::unique_ptr<PipelineLoop> loop = MakePipelineLoop(second().program->queues()[0]);
  loop->Next();
  loop->Next();
  loop.reset();
  EXPECT_THAT(second().listener.NextReady(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has left the pipeline")));
  Stop(absl::CancelledError("it ends"));
  user.Join();
}

TEST_F(TwoRanksTest, AProcessThatNeverAnswersIsNamed) {
  Compute(second());
  RankQueue& queue = QueueOf(first());
  BeginIteration(0);
  ASSERT_EQ(queue.Next().kind, PipelineStep::Kind::kOp);
  Stop(absl::CancelledError("too late"));
  const Report report = first().listener.NextReport();
  EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_EQ(report.positions(0), "rank 0: computes 0F0");
  queue.Done();  // comes too late, and does no harm
}

TEST_F(TwoRanksTest, AnOpThatFailsFailsTheIteration) {
  Compute(second());
  RankQueue& queue = QueueOf(first());
  BeginIteration(0);
  queue.Next();
  queue.Fail(absl::InternalError("a number that is none"));
  const Report report = first().listener.NextReport();
  EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_EQ(report.message(), "rank 0: computes 0F0: a number that is none");
  Stop(absl::CancelledError(report.message()));
}

TEST_F(TwoRanksTest, AProcessThatLeavesFailsTheIteration) {
  Compute(second());
  std::unique_ptr<PipelineLoop> loop = MakePipelineLoop(first().program->queues()[0]);
  BeginIteration(0);
  loop->Next();
  loop.reset();
  const Report report = first().listener.NextReport();
  EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_THAT(report.message(), HasSubstr("computes 0F0: the process has left"));
  Stop(absl::CancelledError(report.message()));
}

// Does it for every op of a rank, until its program is over.
void ForEachOp(RankQueue& queue, absl::FunctionRef<void(const PipelineOp&)> compute) {
  for (PipelineStep step = queue.Next(); step.kind != PipelineStep::Kind::kOver;
       step = queue.Next()) {
    if (step.kind != PipelineStep::Kind::kOp) continue;
    compute(*step.op);
    queue.Done();
  }
}

float ValueAt(MicrobatchIndex m, int64_t row, int64_t column) {
  return static_cast<float>(m * kSide * kSide + row * kSide + column);
}

// Each device has a half of the rows.
void WriteRows(const PipelineOp& op) {
  for (const PipelineTensor& tensor : op.outputs) {
    EXPECT_EQ(tensor.name, "hidden");
    EXPECT_EQ(tensor.other_stage, 1);
    for (size_t device = 0; device < tensor.tiles.size(); ++device) {
      auto* const rows = reinterpret_cast<float*>(tensor.tiles[device].bytes.data());
      const auto first_row = static_cast<int64_t>(device) * kSide / 2;
      for (int64_t i = 0; i < kSide / 2 * kSide; ++i) {
        rows[i] = ValueAt(op.op.microbatch, first_row + i / kSide, i % kSide);
      }
    }
  }
}

// Each device has a half of the columns.
int64_t WrongInColumns(const PipelineOp& op) {
  int64_t wrong = 0;
  for (const PipelineTensor& tensor : op.inputs) {
    for (size_t device = 0; device < tensor.tiles.size(); ++device) {
      const auto* const columns = reinterpret_cast<const float*>(tensor.tiles[device].bytes.data());
      const auto first_column = static_cast<int64_t>(device) * kSide / 2;
      for (int64_t i = 0; i < kSide * kSide / 2; ++i) {
        const float expected =
            ValueAt(op.op.microbatch, i / (kSide / 2), first_column + i % (kSide / 2));
        wrong += columns[i] == expected ? 0 : 1;
      }
    }
  }
  return wrong;
}

// What one computes another gets, in its layout.
TEST_F(TwoRanksTest, TensorsArriveAsTheLayoutsSay) {
  const Thread producer("first", [&] { ForEachOp(QueueOf(first()), WriteRows); });
  const Thread consumer("second", [&] {
    ForEachOp(QueueOf(second()),
              [](const PipelineOp& op) { EXPECT_EQ(WrongInColumns(op), 0) << op.op; });
  });
  for (int64_t iteration = 0; iteration < 2; ++iteration) {
    BeginIteration(iteration);
    for (const auto& worker : workers_) EXPECT_EQ(worker->listener.NextReport().code(), 0);
  }
  Stop(absl::OkStatus());
}

}  // namespace
}  // namespace crossmesh
