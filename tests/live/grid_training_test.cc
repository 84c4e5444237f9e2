// Processes with workers, the real programs, that train phase by phase.

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "examples/tensor_parallel_training/small_training.h"
#include "examples/tensor_parallel_training/state_memory.h"
#include "examples/tensor_parallel_training/testing/program_walk.h"
#include "examples/tensor_parallel_training/training_lead.h"
#include "examples/tensor_parallel_training/training_phase.h"
#include "planner/layers/planned_layers.h"
#include "planner/parallelism/programs/grid_program.h"
#include "tests/live/exact_training.h"
#include "tests/live/following.h"
#include "tests/live/live_cluster.h"
#include "tests/live/running_reshard.h"
#include "worker/memory/storage_table.h"
#include "worker/worker.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh::grid_training {
namespace {

using ::testing::HasSubstr;

constexpr int kProcesses = 8;
constexpr absl::Duration kLineMax = absl::Seconds(30);
// From a loss to the end of the iteration, with a stall limit of a second.
constexpr absl::Duration kFailMax = absl::Seconds(20);
// That are compared to the bit, on each grid.
constexpr int kWalkedSteps = 4;

using FollowedRun = Following<v1::PipelineRun>;

class GridProcessesTest : public ::testing::Test {
 protected:
  // Processes of some phases, with a controller; and a worker of this process, for states as they
  // are in the end.
  void Start(const TrainingSettings& settings, std::vector<std::string> phases) {
    settings_ = settings;
    phases_ = std::move(phases);
    for (int process = 0; process < kProcesses; ++process) {
      devices_.push_back({.host = absl::StrCat("process-", process)});
    }
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = {}}));
    for (int process = 0; process < kProcesses; ++process) {
      ASSERT_OK(StartProcess(process, flags_of_process_[process]));
    }
    ASSERT_OK_AND_ASSIGN(whole_, Worker::Create({.name = "whole",
                                                 .devices = {{.host = "whole"}},
                                                 .controllers = {cluster_->controller_address()}}));
    for (const DeviceId& device : devices_) {
      ASSERT_OK(cluster_->WaitForWorker(device.host, v1::WORKER_STATE_READY));
    }
    ASSERT_OK(cluster_->WaitForWorker("whole", v1::WORKER_STATE_READY));
  }

  absl::Status StartProcess(int process, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"device",
                                          "--controller",
                                          cluster_->controller_address(),
                                          "--processes",
                                          absl::StrCat(kProcesses),
                                          "--number",
                                          absl::StrCat(process)};
    if (settings_.optimizer.is_adam) arguments.push_back("--adam");
    arguments.insert(arguments.end(), {"--layers", absl::StrCat(settings_.model.layers)});
    for (const std::string& phase : phases_) {
      arguments.insert(arguments.end(), {"--phase", phase});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    // Each start has a log of its own.
    logs_[process].push_back(
        cluster_->PathOf(absl::StrCat("process-", process, ".", logs_[process].size())));
    ASSIGN_OR_RETURN(ChildProcess child,
                     ChildProcess::Start({.program = ProgramPath("tensor_parallel_training"),
                                          .arguments = std::move(arguments),
                                          .log_path = logs_[process].back()}));
    children_.erase(process);
    children_.emplace(process, std::move(child));
    return absl::OkStatus();
  }

  TrainingPhase PhaseOf(size_t phase) const { return *ParsePhase(phases_[phase]); }
  GridProgramRequest RequestOfPhase(size_t phase) const {
    return *RequestOf(PhaseOf(phase), settings_, devices_);
  }

  std::unique_ptr<FollowedRun> Begin(size_t phase, int64_t more_iterations = 0) {
    absl::StatusOr<v1::StartPipelineRequest> request =
        RunOf(PhaseOf(phase), settings_, devices_, PhaseOf(phase).steps + more_iterations);
    CHECK_OK(request);
    request->mutable_stall_limit()->set_seconds(1);
    return std::make_unique<FollowedRun>(
        [address = cluster_->controller_address(), request = *std::move(request)](
            FollowedRun::OnChange on_change) -> absl::StatusOr<v1::PipelineRun> {
          ASSIGN_OR_RETURN(Client client, Client::Connect(address, {}));
          return client.StartPipeline(request, on_change);
        });
  }

  // To the end; moves the state there first if the phase goes on with it.
  void Run(size_t phase) {
    if (PhaseOf(phase).goes_on) {
      ASSERT_OK(Move(SideOf(RequestOfPhase(phase - 1), settings_, StorageAfter(phase - 1)),
                     SideOf(RequestOfPhase(phase), settings_, StorageBefore(phase))));
    }
    Finish(phase, *Begin(phase));
  }
  // All phases, one after the other, with the losses of their steps.
  void RunAll(std::vector<double>& losses) {
    for (size_t phase = 0; phase < phases_.size(); ++phase) {
      ASSERT_NO_FATAL_FAILURE(Run(phase));
      const std::vector<double> more = LossesOf(phase);
      losses.insert(losses.end(), more.begin(), more.end());
    }
  }
  void Finish(size_t phase, FollowedRun& run) {
    ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run.Result());
    ASSERT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
    for (int64_t process = 0; process < PhaseOf(phase).devices(); ++process) {
      ASSERT_TRUE(WaitUntil(kLineMax, [&] { return Says(process, Ended(phase)); })) << process;
    }
  }

  absl::Status Move(const v1::ReshardSide& from, const v1::ReshardSide& to) {
    ASSIGN_OR_RETURN(const v1::ReshardSpec spec, MoveOf(settings_, from, to));
    ASSIGN_OR_RETURN(const v1::Operation operation, Execute(cluster_->controller_address(), spec));
    if (operation.state() == v1::OPERATION_STATE_COMMITTED) return absl::OkStatus();
    return absl::InternalError(operation.error());
  }

  static std::string Ended(size_t phase) { return absl::StrCat("phase ", phase, " ended"); }
  std::vector<std::string> Lines(int process) const {
    std::string text;
    for (const std::string& log : logs_.at(process)) absl::StrAppend(&text, ReadTextFile(log));
    return absl::StrSplit(text, '\n');
  }
  bool Says(int process, const std::string& line) const {
    const std::vector<std::string> lines = Lines(process);
    return std::ranges::find(lines, line) != lines.end();
  }

  // By step of the phase: the parts of all devices, in their order. One that was done again must
  // have had the same part.
  std::vector<double> LossesOf(size_t phase) const {
    std::map<int64_t, double> losses;
    for (int process = 0; process < PhaseOf(phase).devices(); ++process) {
      std::map<int64_t, double> parts;
      for (const std::string& line : Lines(process)) {
        const std::vector<std::string> words = absl::StrSplit(line, ' ');
        if (!absl::StartsWith(line, absl::StrCat("phase ", phase, " step "))) continue;
        int64_t step = 0;
        double part = 0;
        CHECK(absl::SimpleAtoi(words[3], &step) && absl::SimpleAtod(words[5], &part)) << line;
        EXPECT_EQ(parts.try_emplace(step, part).first->second, part) << process << ": " << line;
      }
      for (const auto& [step, part] : parts) losses[step] += part;
    }
    std::vector<double> all;
    for (const auto& [step, loss] : losses) all.push_back(loss);
    return all;
  }

  // As the controller does, which knows nothing of the network.
  std::shared_ptr<const PlannedLayers> PlannedOf(size_t phase) const {
    auto planned = PlanLayers(*MakeGridProgram(RequestOfPhase(phase)), Topology());
    CHECK_OK(planned);
    return *std::move(planned);
  }
  ProgramWalk WalkOf(size_t phase) const {
    absl::StatusOr<ProgramWalk> walk =
        ProgramWalk::Create(RequestOfPhase(phase), settings_.optimizer);
    CHECK_OK(walk);
    walk->FollowPlans(PlannedOf(phase));
    return *std::move(walk);
  }

  // As it is after a phase, put together by a reshard to a device of this process.
  Tensors StateAfter(size_t phase) {
    const std::vector<DeviceId> device = {{.host = "whole"}};
    const v1::ReshardSide side =
        SideOf(*RequestOf(*ParsePhase("c=1"), settings_, device), settings_, StorageAfter(phase));
    Tensors state = InitialState(settings_);
    EXPECT_OK(Move(SideOf(RequestOfPhase(phase), settings_, StorageAfter(phase)), side));
    const absl::StatusOr<StorageTable::Opened> storage =
        whole_->storages().Open({StorageAfter(phase), device[0]});
    EXPECT_OK(storage);
    const absl::StatusOr<StateMemory> memory = StateMemory::Create(side, settings_, device[0]);
    EXPECT_OK(memory);
    if (storage.ok() && memory.ok()) memory->Read(storage->arena->bytes(), state);
    return state;
  }

  TrainingSettings settings_;
  std::vector<std::string> phases_;
  std::vector<DeviceId> devices_;
  std::map<int, std::vector<std::string>> flags_of_process_;
  std::unique_ptr<LiveCluster> cluster_;
  std::unique_ptr<Worker> whole_;
  std::map<int, ChildProcess> children_;
  std::map<int, std::vector<std::string>> logs_;
};

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
