// Processes with workers, the real programs, that train phase by phase.

#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "examples/tensor_parallel_training/small_training.h"
#include "examples/tensor_parallel_training/testing/program_walk.h"
#include "tests/live/exact_training.h"
#include "tests/live/grid_processes.h"

#include <csignal>
#include <ostream>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh::grid_training {
namespace {

using ::testing::HasSubstr;

// From a loss to the end of the iteration, with a stall limit of a second.
constexpr absl::Duration kFailMax = absl::Seconds(20);
// That are compared to the bit, on each grid.
constexpr int kWalkedSteps = 4;

void ExpectSame(const Tensors& some, const Tensors& others) {
  ASSERT_EQ(some.size(), others.size());
  for (const auto& [name, values] : others) EXPECT_TRUE(some.at(name) == values) << name;
}

TEST_F(GridProcessesTest, LossesAreThoseOfOneProcessOnEveryGrid) {
  ASSERT_NO_FATAL_FAILURE(Start(
      SmallTraining(), {"r=8", "c=8", "z=8", "data=8", "c=2,r=2,z=2", "r=2,z=2,data=2 overlaps=all",
                        "c=2,r=4", "c=2,r=2,z=2 scattered", "c=2,r=2,z=2 scattered diagonal",
                        "r=2,z=2|c=2,data=2 microbatches=4", "r=2,z=4+c=2,r=2,z=2@mlp"}));
  const ExactTraining exact(settings_, 20);
  for (size_t phase = 0; phase < phases_.size(); ++phase) {
    SCOPED_TRACE(phases_[phase]);
    ASSERT_NO_FATAL_FAILURE(Run(phase));
    const std::vector<double> losses = LossesOf(phase);
    ASSERT_EQ(losses.size(), PhaseOf(phase).steps);
    exact.ExpectNear(losses);
    ProgramWalk walk = WalkOf(phase);
    for (int step = 0; step < kWalkedSteps; ++step) ASSERT_EQ(*walk.Step(), losses[step]);
  }
}

TEST_F(GridProcessesTest, OverlapsChangeNoBit) {
  const std::string grid = "c=2,r=2,z=2 microbatches=2 steps=5 ";
  ASSERT_NO_FATAL_FAILURE(Start(
      SmallTraining(), {grid + "overlaps=none pending=1", grid, grid + "pending=3 cached=1"}));
  ProgramWalk walk = WalkOf(0);
  for (int step = 0; step < PhaseOf(0).steps; ++step) ASSERT_OK(walk.Step());
  ASSERT_OK_AND_ASSIGN(const Tensors state, walk.State());
  for (size_t phase = 0; phase < phases_.size(); ++phase) {
    SCOPED_TRACE(phases_[phase]);
    ASSERT_NO_FATAL_FAILURE(Run(phase));
    EXPECT_EQ(LossesOf(phase), LossesOf(0));
    ExpectSame(StateAfter(phase), state);
  }
}

// With the moments of Adam, from shards that begin inside rows, to the diagonal, by way of stages.
TEST_F(GridProcessesTest, GridsChangeInTheMiddle) {
  ASSERT_NO_FATAL_FAILURE(Start(
      SmallAdamTraining(), {"r=2,z=4 steps=10", "c=2,r=2,z=2 scattered diagonal steps=6 goes_on",
                            "z=4|r=2,data=2 microbatches=2 steps=4 goes_on"}));
  std::vector<double> losses;
  ASSERT_NO_FATAL_FAILURE(RunAll(losses));
  ASSERT_EQ(losses.size(), 20);
  ExactTraining(settings_, 20).ExpectNear(losses);
}

// Ranks with two stages each, under interleaved 1F1B; their state goes to one grid and on.
TEST_F(GridProcessesTest, StagesOfARankTakeTurns) {
  ASSERT_NO_FATAL_FAILURE(
      Start(SmallAdamTraining(4), {"r=2,z=2|c=2,data=2 chunks=2 microbatches=4 steps=6",
                                   "c=2,r=2,z=2 scattered steps=3 goes_on",
                                   "z=2|r=2 scattered chunks=2 microbatches=2 steps=3 goes_on"}));
  std::vector<double> losses;
  ASSERT_NO_FATAL_FAILURE(RunAll(losses));
  ASSERT_EQ(losses.size(), 12);
  ExactTraining(settings_, 12).ExpectNear(losses);
  ProgramWalk walk = WalkOf(0);
  for (int step = 0; step < PhaseOf(0).steps; ++step) ASSERT_EQ(*walk.Step(), losses[step]);
  ASSERT_OK_AND_ASSIGN(const Tensors state, walk.State());
  ExpectSame(StateAfter(0), state);
}

// Of all that was, only the checkpoints are left: of a grid with shards that begin inside rows,
// with the moments of Adam.
TEST_F(GridProcessesTest, AnotherGridGoesOnFromCheckpoints) {
  const TemporaryFolder folder;
  const auto give_all = [this](const std::vector<std::string>& flags) {
    for (int process = 0; process < kProcesses; ++process) flags_of_process_[process] = flags;
  };
  give_all({"--checkpoints", folder.path()});
  ASSERT_NO_FATAL_FAILURE(Start(SmallAdamTraining(), {"r=2,z=4 steps=6"}));
  std::vector<double> losses;
  ASSERT_NO_FATAL_FAILURE(RunAll(losses));
  End();
  give_all({"--resume", folder.PathOf("phase-0")});
  ASSERT_NO_FATAL_FAILURE(
      Start(SmallAdamTraining(), {"c=2,r=2,z=2 scattered diagonal steps=4 goes_on",
                                  "z=4|r=2,data=2 microbatches=2 steps=2 goes_on"}));
  ASSERT_NO_FATAL_FAILURE(RunAll(losses));
  ASSERT_EQ(losses.size(), 12);
  ExactTraining(settings_, 12).ExpectNear(losses);
}

// One process stops, or dies, in step 2 or when that is complete: the others wait in a collective.
class DisturbedTrainingTest : public GridProcessesTest {
 protected:
  static constexpr int kDisturbed = 3;

  // Staging takes 32 MiB, and messages and plans of the program take 5 MB: there is room for them
  // once. So the next start shows that all of it came back.
  static constexpr int64_t kMemoryMax = (int64_t{32} << 20) + 6'500'000;

  void SetFlags(const std::vector<std::string>& of_disturbed) {
    for (int process = 0; process < kProcesses; ++process) {
      flags_of_process_[process] = {"--memory-max", absl::StrCat(kMemoryMax), "--checkpoints",
                                    checkpoints_.path()};
    }
    std::vector<std::string>& flags = flags_of_process_[kDisturbed];
    flags.insert(flags.end(), of_disturbed.begin(), of_disturbed.end());
  }

  // Bounded: with a stall limit of a second.
  static std::string ErrorOfFirst(FollowedRun& run) {
    const absl::StatusOr<v1::PipelineRun> failed = run.WaitFor(
        [](const v1::PipelineRun& now) { return now.failed_iterations() >= 1; }, kFailMax);
    EXPECT_OK(failed);
    if (!failed.ok()) return "";
    for (const v1::PipelineIteration& iteration : failed->done()) {
      if (!iteration.error().empty()) return iteration.error();
    }
    return "";
  }

  void ExpectUndisturbedLosses() {
    const std::vector<double> losses = LossesOf(0);
    ASSERT_GE(losses.size(), 4);
    ProgramWalk walk = WalkOf(0);
    for (const double loss : losses) EXPECT_EQ(*walk.Step(), loss);
  }

  const TemporaryFolder checkpoints_;
};

struct StopPlace {
  const char* op;
  const char* wait;  // of others
};

std::ostream& operator<<(std::ostream& out, const StopPlace& place) { return out << place.op; }

// Also when others have summed their gradients.
class StoppedProcessTest : public DisturbedTrainingTest,
                           public ::testing::WithParamInterface<StopPlace> {};
INSTANTIATE_TEST_SUITE_P(
    Places, StoppedProcessTest,
    ::testing::Values(StopPlace{"2 m0.layer1.mlp_out.give",
                                "rank 0: m0.layer1.mlp_out.forward waits for mlp_out.gather after "
                                "m0.layer1.mlp_out.give"},
                      StopPlace{"2 vectors", "rank 0: update_vectors waits for vectors_of_"}));

TEST_P(StoppedProcessTest, ItsStepFailsByNameAndIsTakenAgain) {
  SetFlags({"--stop-at", GetParam().op});
  ASSERT_NO_FATAL_FAILURE(Start(SmallTraining(), {"r=2,z=4 steps=5"}));
  const auto run = Begin(0, 1);
  const std::string error = ErrorOfFirst(*run);
  EXPECT_THAT(error, HasSubstr("worker process-3 is lost: stalled"));
  EXPECT_THAT(error, HasSubstr(GetParam().wait));
  EXPECT_EQ(::kill(children_.at(kDisturbed).pid(), SIGCONT), 0);
  ASSERT_NO_FATAL_FAILURE(Finish(0, *run));
  ExpectUndisturbedLosses();
}

// Also one that is killed before it has written the checkpoint of a step that is complete.
class KilledProcessTest : public DisturbedTrainingTest,
                          public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Places, KilledProcessTest,
                         ::testing::Values("2 m0.layer1.mlp_out.give", "2 complete"));

TEST_P(KilledProcessTest, AnotherOneGoesOnFromCheckpoints) {
  SetFlags({"--kill-at", GetParam()});
  ASSERT_NO_FATAL_FAILURE(Start(SmallTraining(), {"r=2,z=4 steps=5"}));
  // One fails, and the one before it is done again.
  const auto run = Begin(0, 2);
  const std::string error = ErrorOfFirst(*run);
  // It may be noticed before others wait for it.
  EXPECT_THAT(error, HasSubstr("worker process-3"));
  EXPECT_THAT(error, HasSubstr("rank 0: "));
  ASSERT_OK(StartProcess(kDisturbed, flags_of_process_[0]));
  ASSERT_NO_FATAL_FAILURE(Finish(0, *run));
  ExpectUndisturbedLosses();
}

}  // namespace
}  // namespace crossmesh::grid_training
