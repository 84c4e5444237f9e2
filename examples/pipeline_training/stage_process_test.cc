#include "examples/pipeline_training/stage_process.h"

#include "common/base/check.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "examples/pipeline_training/testing/planned_loops.h"
#include "planner/pipeline/formats/schedule_file.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/planned_pipeline.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

namespace crossmesh::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using PlannedPointer = std::shared_ptr<const PlannedPipeline>;

constexpr int kSteps = 6;

v1::PipelineSpec TrainingPipeline() {
  v1::PipelineSpec spec;
  const auto read = google::protobuf::util::JsonStringToMessage(
      ReadTextFile(SourcePath("examples/pipeline_training/pipeline.json")), &spec);
  CHECK(read.ok()) << read.ToString();
  return spec;
}

absl::StatusOr<PlannedPointer> PlanOf(const v1::PipelineSpec& spec,
                                      const v1::PipelineChoice& choice) {
  absl::StatusOr<PipelineDescription> description =
      FromProto(spec, std::vector<std::shared_ptr<const Mesh>>(spec.ranks_size()));
  if (!description.ok()) return description.status();
  return PlanPipeline(*std::move(description), choice);
}

absl::StatusOr<PlannedPointer> PlanOf(const v1::PipelineSpec& spec, const std::string& schedule,
                                      bool delay_weight_gradients) {
  v1::PipelineChoice choice;
  choice.set_schedule(schedule);
  choice.set_delay_weight_gradients(delay_weight_gradients);
  return PlanOf(spec, choice);
}

// The processes of all stages, each on a thread.
class Processes {
 public:
  explicit Processes(PlannedPointer planned, std::string checkpoints = "")
      : planned_(std::move(planned)), checkpoints_(std::move(checkpoints)) {
    processes_.resize(Model::kStages);
    for (int stage = 0; stage < Model::kStages; ++stage) Replace(stage);
  }

  // By one that knows nothing.
  void Replace(int stage) {
    const auto on_step = [this, stage](int step, double loss) {
      if (stage == Model::kStages - 1) OnLoss(step, loss);
    };
    processes_[stage] = std::make_unique<StageProcess>(
        stage, planned_->description.ranks[stage].mesh->devices(),
        StageProcess::Options{.on_step = on_step, .checkpoints = checkpoints_});
  }

  // Until their loops are over; returns why, by rank.
  std::vector<absl::Status> Run(PlannedLoops::Options options) {
    PlannedLoops loops(planned_, std::move(options));
    std::vector<absl::Status> why(processes_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      threads.emplace_back([this, &loops, &why, rank] {
        why[rank] = processes_[rank]->Run(*loops.LoopOf(static_cast<RankIndex>(rank)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return why;
  }
  void RunToTheEnd(const PlannedLoops::Options& options) {
    for (const absl::Status& why : Run(options)) EXPECT_OK(why);
  }

  const std::vector<double>& losses() const { return losses_; }
  int64_t ops() const { return planned_->ops->size(); }

 private:
  // A step that is done once more has the same loss to the bit.
  void OnLoss(int step, double loss) {
    ASSERT_LE(step, std::ssize(losses_));
    if (step == std::ssize(losses_)) losses_.push_back(loss);
    EXPECT_EQ(losses_[step], loss);
  }

  const PlannedPointer planned_;
  const std::string checkpoints_;
  std::vector<double> losses_;
  std::vector<std::unique_ptr<StageProcess>> processes_;
};

class StageProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(planned_, PlanOf(TrainingPipeline(), "eager_1f1b", true));
    Processes undisturbed(planned_);
    undisturbed.RunToTheEnd({.iterations = kSteps});
    losses_ = undisturbed.losses();
  }

  PlannedPointer planned_;
  std::vector<double> losses_;
};

// Over the layouts of the pipeline's file, in the order of its schedule.
TEST_F(StageProcessTest, LossesAreThoseOfOneProcess) {
  constexpr int kAllSteps = 20;
  Processes processes(planned_);
  processes.RunToTheEnd({.iterations = kAllSteps});
  const std::vector<double>& losses = processes.losses();
  const std::vector<double> alone = TrainAlone(kAllSteps);
  ASSERT_EQ(losses.size(), alone.size());
  for (int step = 0; step < kAllSteps; ++step) {
    EXPECT_NEAR(losses[step], alone[step], 1e-5 * alone[step]) << "step " << step;
  }
  EXPECT_LT(losses.back(), 0.2 * losses.front());
}

// Each sum is taken in the same order, whatever is computed or sent first.
TEST_F(StageProcessTest, LossesAreTheSameToTheBitUnderEverySchedule) {
  for (const char* schedule : {"gpipe", "1f1b", "eager_1f1b", "window_order", "auto"}) {
    for (const bool delay : {false, true}) {
      SCOPED_TRACE(absl::StrCat(schedule, delay ? ", weight gradients delayed" : ""));
      ASSERT_OK_AND_ASSIGN(const PlannedPointer planned,
                           PlanOf(TrainingPipeline(), schedule, delay));
      Processes processes(planned);
      processes.RunToTheEnd({.iterations = kSteps});
      EXPECT_EQ(processes.losses(), losses_);
    }
  }
}

TEST_F(StageProcessTest, LossesAreTheSameToTheBitWithFusedPairs) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer in_turn, PlanOf(TrainingPipeline(), "gpipe", false));
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    Schedule schedule = RandomSchedule(random, in_turn->profile, in_turn->schedule.microbatches,
                                       BackwardForm::kFull, /*in_order=*/true);
    FuseRandomOps(random, in_turn->profile, schedule);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, in_turn->profile));
    v1::PipelineChoice choice;
    choice.set_schedule_file(*ToScheduleFile(ops));
    ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(TrainingPipeline(), choice));
    EXPECT_EQ(planned->schedule, schedule);
    Processes processes(planned);
    processes.RunToTheEnd({.iterations = kSteps});
    EXPECT_EQ(processes.losses(), losses_);
  }
}

// A step that was cut short anywhere is as if it had not been begun.
TEST_F(StageProcessTest, AStepThatIsCutShortIsTakenAgain) {
  constexpr int64_t kFirst = 3;  // steps before
  for (uint64_t seed = 0; seed < 10; ++seed) {
    RandomSource random(seed);
    Processes processes(planned_);
    const int64_t done = random.Between(1, processes.ops() - 1);
    // With the next number, or the same as in a run that begins anew.
    const int64_t again = kFirst + random.Between(0, 1);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": after op ", done, ", again as ", again));
    for (const absl::Status& why :
         processes.Run({.iterations = kSteps, .ops_max = kFirst * processes.ops() + done})) {
      EXPECT_EQ(why.code(), absl::StatusCode::kAborted) << why;
    }
    processes.RunToTheEnd({.first_iteration = again, .iterations = kSteps - kFirst});
    EXPECT_EQ(processes.losses(), losses_);
  }
}

// Some of the processes know that the step is complete, the others hear it from the next loop.
TEST_F(StageProcessTest, AStepThatIsCompleteIsTakenOnceByAll) {
  for (const std::set<RankIndex>& told : {std::set<RankIndex>{}, {0, 3}, {1, 2}, {0, 1, 2, 3}}) {
    SCOPED_TRACE(testing::PrintToString(told));
    Processes processes(planned_);
    processes.Run({.iterations = kSteps, .ops_max = 4 * processes.ops(), .told = told});
    processes.RunToTheEnd(
        {.first_iteration = 4, .iterations = kSteps - 4, .complete_iteration = 3});
    EXPECT_EQ(processes.losses(), losses_);
  }
}

// A run that is cut short since processes were replaced, in the middle of an iteration, or before
// all have heard that it is complete.
TEST_F(StageProcessTest, WhatAReplacedProcessHasLostIsReadFromACheckpoint) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomSource random(seed);
    const TemporaryFolder folder;
    Processes processes(planned_, folder.path());
    const int64_t complete = random.Between(0, 3);  // iterations
    const int64_t more = random.Between(complete == 0 ? 1 : 0, processes.ops() - 1);
    std::set<RankIndex> told, lost = {static_cast<RankIndex>(random.Below(Model::kStages))};
    for (RankIndex rank = 0; rank < Model::kStages; ++rank) {
      if (random.OneIn(2)) told.insert(rank);
      if (random.OneIn(3)) lost.insert(rank);
    }
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", complete, " complete and ", more, " ops, lost ",
                              testing::PrintToString(lost), ", told ",
                              testing::PrintToString(told)));
    processes.Run({.iterations = kSteps,
                   .ops_max = complete * processes.ops() + more,
                   .told = more == 0 ? told : std::set<RankIndex>()});
    for (const RankIndex rank : lost) processes.Replace(rank);
    // What a lost process was not told of is done once more.
    const bool all_had_last = more > 0 || std::ranges::includes(told, lost);
    processes.RunToTheEnd(
        {.first_iteration = complete + 1,
         .iterations = kSteps - complete + (all_had_last ? 0 : 1),
         .complete_iteration = complete == 0 ? std::nullopt : std::make_optional(complete - 1),
         .lost_ranks = {lost.begin(), lost.end()}});
    EXPECT_EQ(processes.losses(), losses_);
  }
}

TEST_F(StageProcessTest, WithoutCheckpointsTheRunEndsWhenAProcessIsReplaced) {
  Processes processes(planned_);
  processes.RunToTheEnd({.iterations = 1});
  processes.Replace(1);
  for (const absl::Status& why :
       processes.Run({.first_iteration = 2, .complete_iteration = 0, .lost_ranks = {1}})) {
    EXPECT_THAT(why, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("checkpoints")));
  }
  EXPECT_THAT(processes.losses(), ElementsAre(losses_[0]));
}

// Why stages fail on a pipeline that is not that of the model.
void ExpectRefused(const v1::PipelineSpec& spec, const std::string& message) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(spec, "eager_1f1b", true));
  Processes processes(planned);
  for (const absl::Status& why : processes.Run({})) {
    EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(why.message()), HasSubstr(message));
  }
  EXPECT_TRUE(processes.losses().empty());
}

TEST(StageProcessRefusalTest, ALayoutThatIsNotTheStages) {
  v1::PipelineSpec spec = TrainingPipeline();
  spec.mutable_edges(0)->mutable_tensors(0)->set_destination_layout("[-, model]");
  ExpectRefused(spec, "1F0: tensor h0 of stage 0: expected 1536 bytes on stage-1.0, found 768");
}

TEST(StageProcessRefusalTest, AnActivationOfAnotherShape) {
  v1::PipelineSpec spec = TrainingPipeline();
  spec.mutable_edges(0)->mutable_tensors(0)->mutable_tensor()->set_shape(1, 40);
  ExpectRefused(spec, "0F0: tensor h0 of stage 1: expected 1536 bytes on stage-0.0, found 1280");
}

TEST(StageProcessRefusalTest, AnotherType) {
  v1::PipelineSpec spec = TrainingPipeline();
  spec.mutable_edges(0)->mutable_tensors(0)->mutable_tensor()->set_dtype("I32");
  ExpectRefused(spec, "0F0: tensor h0 of stage 1: expected F32, found I32");
}

TEST(StageProcessRefusalTest, OtherMicrobatches) {
  v1::PipelineSpec spec = TrainingPipeline();
  spec.mutable_microbatches(1)->set_samples(6);
  ExpectRefused(spec, "0F3: expected 4 microbatches of 8, 8, 8, 5 samples, found one of 6");
}

TEST(StageProcessRefusalTest, AMissingSkip) {
  v1::PipelineSpec spec = TrainingPipeline();
  spec.mutable_edges()->RemoveLast();
  ExpectRefused(spec, "3F0: expected a tensor of stage 0, found none");
}

}  // namespace
}  // namespace crossmesh::training
