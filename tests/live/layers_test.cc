// Layer programs by the real programs: grids that are tuned, and a worker that is killed in the
// middle of a step's collectives.

#include "client/cli/testing/program_run.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "tests/live/layer_steps.h"
#include "tests/live/pipeline_fixture.h"

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

constexpr char kModel[] =
    "--layers 2 --hidden 64 --heads 8 --vocabulary 256 --batch 16 --sequence 16 ";

class LayersTest : public PipelineTest {};

TEST_F(LayersTest, GridsAreTunedOnTheWorkers) {
  ASSERT_NO_FATAL_FAILURE(StartCluster(kStepWorkers));
  const std::string tune =
      absl::StrCat("grid tune --controller ", cluster_->controller_address(), " --devices ",
                   kStepDevices, " --device a100 --with-pipeline ", kModel);
  const ProgramResult shown = Crossmesh(absl::StrCat(tune, "--top 4 --by-layer"));
  ASSERT_EQ(shown.exit_status, 0) << shown.error;
  EXPECT_THAT(shown.out, HasSubstr("MEASURED"));
  EXPECT_THAT(shown.out, HasSubstr("best: "));
  EXPECT_THAT(shown.out, HasSubstr("layer1 "));
  EXPECT_THAT(shown.out, HasSubstr("WHAT TO CHANGE"));
  const ProgramResult named =
      Crossmesh(absl::StrCat(tune, "--json r=4 c=2,r=2 r=2,z=2 z=4 data=4 z=2,pipeline=2"));
  ASSERT_EQ(named.exit_status, 0) << named.error;
  const nlohmann::json document = nlohmann::json::parse(named.out);
  ASSERT_EQ(document["grids"].size(), 6);
  std::vector<std::string> found;
  for (const nlohmann::json& finding : document["findings"]) {
    found.push_back(finding["of"]);
    EXPECT_GT(finding["measured_seconds"], 0) << finding;
  }
  EXPECT_THAT(found, ElementsAre("c", "r", "z", "data", "ops"));
  for (const nlohmann::json& grid : document["grids"]) {
    EXPECT_GT(grid["measured_seconds"], 0) << grid;
    EXPECT_GT(grid["predicted_seconds"], 0) << grid;
    double exposed = 0;
    for (const nlohmann::json& layer : grid["layers"]) {
      exposed += layer["exposed_seconds"].get<double>();
    }
    EXPECT_EQ(grid["layers"].size(), 4);  // two, logits, and what is of none
    EXPECT_NEAR(exposed, grid["exposed_seconds"], 1e-9) << grid;
    const ProgramResult run =
        Crossmesh(absl::StrCat("pipeline show ", grid["run"].get<std::string>(), " --json",
                               " --controller ", cluster_->controller_address()));
    ASSERT_EQ(run.exit_status, 0) << run.error;
    EXPECT_EQ(nlohmann::json::parse(run.out)["median_seconds"], grid["measured_seconds"]);
  }
  const ProgramResult other = Crossmesh(absl::StrCat(tune, "r=3"));
  EXPECT_NE(other.exit_status, 0);
  EXPECT_THAT(other.error, HasSubstr("r=3"));
}

// Attention, MLP and logits on grids of their own, some layers too: the joints move real bytes like
// all else, and each grid has a place between those of one grid for all layers.
TEST_F(LayersTest, GridsOfLayersAreTunedOnTheWorkers) {
  ASSERT_NO_FATAL_FAILURE(StartCluster(kStepWorkers));
  const std::string tune = absl::StrCat("grid tune --controller ", cluster_->controller_address(),
                                        " --devices ", kStepDevices, " --device a100 ", kModel);
  const std::vector<std::string> grids = {"r=2,z=2", "r=2,z=2+z=4@mlp", "r=4+z=4@mlp+c=4@logits",
                                          "c=2,r=2+z=4@1"};
  const ProgramResult shown = Crossmesh(absl::StrCat(tune, absl::StrJoin(grids, " ")));
  ASSERT_EQ(shown.exit_status, 0) << shown.error;
  for (const std::string& grid : grids) EXPECT_THAT(shown.out, HasSubstr(grid));
  const ProgramResult named = Crossmesh(absl::StrCat(tune, "--json ", absl::StrJoin(grids, " ")));
  ASSERT_EQ(named.exit_status, 0) << named.error;
  const nlohmann::json document = nlohmann::json::parse(named.out);
  std::vector<std::string> tuned;
  for (const nlohmann::json& grid : document["grids"]) {
    tuned.push_back(grid["grid"]);
    EXPECT_GT(grid["predicted_seconds"], 0) << grid;
    EXPECT_GT(grid["cost_model_seconds"], 0) << grid;
    // Ops alone take as long, and what moves is not free.
    EXPECT_GT(grid["measured_seconds"], grid["predicted_seconds"].get<double>() / 2) << grid;
    const ProgramResult run =
        Crossmesh(absl::StrCat("pipeline show ", grid["run"].get<std::string>(), " --json",
                               " --controller ", cluster_->controller_address()));
    ASSERT_EQ(run.exit_status, 0) << run.error;
    EXPECT_EQ(nlohmann::json::parse(run.out)["median_seconds"], grid["measured_seconds"]);
    // The joints are transfers of the run, and have been measured.
    const bool has_joints = absl::StrContains(grid["grid"].get<std::string>(), "+");
    EXPECT_EQ(absl::StrContains(run.out, "grid0.grid1.activations"), has_joints) << run.out;
    EXPECT_EQ(absl::StrContains(run.out, "grid1.grid0.gradients"), has_joints) << run.out;
  }
  EXPECT_THAT(tuned, UnorderedElementsAreArray(grids));
  EXPECT_THAT(grids, Contains(document["best"].get<std::string>()));
  const ProgramResult other = Crossmesh(absl::StrCat(tune, "r=4+z=2@mlp"));
  EXPECT_NE(other.exit_status, 0);
  EXPECT_THAT(other.error, HasSubstr("grid z=2@mlp: expected 4 devices"));
}

// Stages of a rank take turns; the cost model has a closed form of it, the program the ops.
TEST_F(LayersTest, InterleavedStagesAreTunedOnTheWorkers) {
  ASSERT_NO_FATAL_FAILURE(StartCluster(kStepWorkers));
  const ProgramResult tuned = Crossmesh(absl::StrCat(
      "grid tune --json r=2,pipeline=2 z=2,pipeline=2 --controller ",
      cluster_->controller_address(), " --devices ", kStepDevices,
      " --device a100 --with-pipeline --schedule interleaved_1f1b --chunks 2 --layers 4 "
      "--hidden 64 --heads 8 --vocabulary 256 --batch 16 --sequence 16 --microbatch 2"));
  ASSERT_EQ(tuned.exit_status, 0) << tuned.error;
  const nlohmann::json document = nlohmann::json::parse(tuned.out);
  ASSERT_EQ(document["grids"].size(), 2);
  for (const nlohmann::json& grid : document["grids"]) {
    EXPECT_GT(grid["predicted_seconds"], 0) << grid;
    EXPECT_GT(grid["measured_seconds"], 0) << grid;
  }
}

// One to run the program, however many steps, layers and microbatches.
TEST_F(LayersTest, StepsMakeNoCalls) {
  ASSERT_NO_FATAL_FAILURE(StartCluster(kStepWorkers));
  constexpr char kStarted[] = "grpc_server_started_total";
  double before = 0;
  constexpr struct {
    v1::StartPipelineRequest (*step)(double seconds_of_op);
    int64_t iterations;
  } kRuns[] = {{StepOnGrid, 1},
               {StepOnGrid, 12},
               {StepOnGridsOfLayers, 12},
               {StepOnStages, 12},
               {InterleavedStep, 12}};
  for (const auto& [step, iterations] : kRuns) {
    v1::StartPipelineRequest request = step(1e-5);
    request.set_iterations(iterations);
    ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, Run(request)->Result());
    ASSERT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
    EXPECT_EQ(Complete(done), iterations);
    for (const std::string& worker : kStepWorkers) {
      ASSERT_OK_AND_ASSIGN(const double all, cluster_->Metric(worker, kStarted));
      ASSERT_OK_AND_ASSIGN(const double programs, cluster_->Metric(worker, kStarted, "RunProgram"));
      EXPECT_EQ(all, before + 1) << worker << " after " << iterations << " iterations";
      EXPECT_EQ(programs, before + 1);
    }
    ++before;
  }
}

TEST_F(LayersTest, AxesAreMeasuredOnTheWorkersAndTakenByTuning) {
  ASSERT_NO_FATAL_FAILURE(StartCluster(kStepWorkers));
  const std::string controller = absl::StrCat(" --controller ", cluster_->controller_address());
  const std::string mesh = absl::StrCat("network measure --mesh 'x=2,y=2 on ", kStepDevices,
                                        "' --gather-bytes 8000000", controller);
  const auto measured = [](const ProgramResult& result) {
    EXPECT_EQ(result.exit_status, 0) << result.error;
    return nlohmann::json::parse(result.out);
  };
  const nlohmann::json first = measured(Crossmesh(mesh + " --axes x --json"));
  EXPECT_EQ(first["revision"], "1");
  ASSERT_EQ(first["axes"]["positions"].size(), 1) << first;
  EXPECT_EQ(first["axes"]["positions"][0]["inner"], "2");
  EXPECT_EQ(first["axes"]["positions"][0]["own"], "2");
  const nlohmann::json all = measured(Crossmesh(mesh + " --json"));
  EXPECT_EQ(all["revision"], "2");
  ASSERT_EQ(all["axes"]["positions"].size(), 3) << all;

  const std::string on = absl::StrCat("--devices ", kStepDevices, " --device a100 ", kModel);
  const std::string tune = absl::StrCat("grid tune --json c=2,r=2 r=4 ", on, controller);
  const nlohmann::json tuned = measured(Crossmesh(tune));
  for (const nlohmann::json& grid : tuned["grids"]) {
    EXPECT_EQ(grid["rate_sources"], nlohmann::json::array({"measured"})) << grid;
  }
  const ProgramResult rates = Crossmesh("network show --as-rates" + controller);
  ASSERT_EQ(rates.exit_status, 0) << rates.error;
  const TemporaryFolder files;
  std::ofstream(files.PathOf("rates.json")) << rates.out;
  const nlohmann::json explained = measured(Crossmesh(
      absl::StrCat("grid explain r=4 --json ", on, " --rates ", files.PathOf("rates.json"))));
  EXPECT_EQ(explained["axes"]["r"]["source"], "measured");

  // What the network is said to be now was not measured.
  std::ofstream(files.PathOf("network.json")) << R"({"hosts": [{"name": "node-0", "nics": [
      {"name": "eth0", "out_bytes_per_second": 1000000000, "in_bytes_per_second": 1000000000}]}]})";
  const ProgramResult set =
      Crossmesh(absl::StrCat("network set ", files.PathOf("network.json"), controller));
  ASSERT_EQ(set.exit_status, 0) << set.error;
  EXPECT_THAT(Crossmesh("network show --as-rates" + controller).error,
              HasSubstr("measured on the current network, found none"));
  const nlohmann::json untold = measured(Crossmesh(tune));
  for (const nlohmann::json& grid : untold["grids"]) {
    EXPECT_EQ(grid["rate_sources"], nlohmann::json::array({"described"})) << grid;
  }
}

TEST_F(LayersTest, AnAxisOverAWorkerThatIsNotThereIsNamedAndNothingIsStored) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0"}));
  const std::string controller = absl::StrCat(" --controller ", cluster_->controller_address());
  const ProgramResult result =
      Crossmesh("network measure --mesh 'x=2 on node-0.0,node-9.0'" + controller);
  EXPECT_NE(result.exit_status, 0);
  EXPECT_THAT(result.error, AllOf(HasSubstr("inner 1, own 2"), HasSubstr("node-9")));
  EXPECT_THAT(Crossmesh("network show" + controller).out, HasSubstr("is not described"));
}

struct LossCase {
  std::string name;
  int signal = SIGKILL;
  bool interleaved = false;
};

// A worker that stands still for as long as it takes the others to wait for it in a collective;
// then it is killed, or not heard of again within the stall limit.
class LostInCollectiveTest : public LayersTest, public testing::WithParamInterface<LossCase> {
 protected:
  // Nothing is found out before the worker is known to stand still, where it is to be killed.
  void Lose(const std::string& worker) {
    cluster_->Signal(worker, SIGSTOP);
    if (GetParam().signal == SIGSTOP) return;
    ASSERT_OK(cluster_->WaitForWorker(worker, v1::WORKER_STATE_SUSPECT));
    cluster_->Kill(worker);
  }
  void BringBack(const std::string& worker) {
    if (GetParam().signal == SIGSTOP) return cluster_->Signal(worker, SIGCONT);
    ASSERT_OK(cluster_->StartWorker(worker));
  }
  void ExpectNothingHeld(const std::string& worker) {
    EXPECT_TRUE(WaitUntil(absl::Seconds(10), [&] {
      const absl::StatusOr<double> used =
          cluster_->Metric(worker, "crossmesh_worker_staging_bytes", R"(state="used")");
      return used.ok() && *used == 0;
    })) << worker;
  }
};

TEST_P(LostInCollectiveTest, TheStepFailsByLayerCollectiveAndRankAndTheNextOneRuns) {
  ASSERT_NO_FATAL_FAILURE(StartCluster(kStepWorkers));
  v1::StartPipelineRequest request =
      GetParam().interleaved ? InterleavedStep(0.002) : StepOnGrid(0.002);
  request.set_iterations(4);
  request.mutable_stall_limit()->set_seconds(GetParam().signal == SIGKILL ? 60 : 1);
  const auto run = Run(request);
  ASSERT_NO_FATAL_FAILURE(WaitForFirst(*run));
  ASSERT_NO_FATAL_FAILURE(Lose("node-1"));
  const v1::PipelineRun failed = WaitForFailure(*run);
  EXPECT_THAT(ErrorOf(failed), HasSubstr("node-1"));
  // node-1 has an end of the collectives of its rank; what the others of it were in, by the layer's
  // op that gave it.
  EXPECT_THAT(ErrorOf(failed),
              ContainsRegex("rank 0: .*(waits for|moving) [a-z_0-9.]+ (after|before) "
                            "([a-z0-9]+\\.)*(layer[0-9]+|embed|logits|loss|vectors|stage[0-9])"));
  ASSERT_NO_FATAL_FAILURE(BringBack("node-1"));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(done.failed_iterations(), 1);
  EXPECT_EQ(Complete(done), 3);
  for (const std::string& worker : kStepWorkers) ExpectNothingHeld(worker);
}

INSTANTIATE_TEST_SUITE_P(Signals, LostInCollectiveTest,
                         testing::Values(LossCase{"Killed", SIGKILL}, LossCase{"Stopped", SIGSTOP},
                                         LossCase{"KilledInterleaved", SIGKILL, true},
                                         LossCase{"StoppedInterleaved", SIGSTOP, true}),
                         [](const auto& info) { return info.param.name; });

// None of the others waits for the worker when the sum that it has a part of moves no more.
TEST_F(LayersTest, RanksThatComputeSayWhichCollectiveALostWorkerHolds) {
  ASSERT_NO_FATAL_FAILURE(StartCluster(kStepWorkers));
  v1::StartPipelineRequest request = LongOpBesideASum();
  request.set_iterations(2);
  const auto run = Run(request);
  ASSERT_OK(run->WaitFor(
                   [](const v1::PipelineRun& now) {
                     return now.state() == v1::PIPELINE_RUN_STATE_RUNNING;
                   },
                   kBeginMax)
                .status());
  // In the first op, or before it.
  cluster_->Signal("node-1", SIGSTOP);
  const std::string error = ErrorOf(WaitForFailure(*run));
  cluster_->Signal("node-1", SIGCONT);
  EXPECT_THAT(error, HasSubstr("node-1"));
  EXPECT_THAT(error, HasSubstr("rank 0: computes layer1.forward, moving sum after layer0.forward"));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(Complete(done), 1);
}

}  // namespace
}  // namespace crossmesh
