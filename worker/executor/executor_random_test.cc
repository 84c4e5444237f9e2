// Random plans on random workers: every destination element is right, nothing else is written.
// CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/plan/proof.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"

#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

void RunCases(int64_t cases, const MeshRunner::Options& options, uint64_t seed,
              Plan (*make_case)(RandomSource&) = RandomCase) {
  MeshRunner runner(options);
  for (int64_t i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    const Plan plan = make_case(random);
    ASSERT_OK(Prove(plan));
    TileMemory memory(plan);
    const std::vector<int32_t> workers = DealDevices(random, plan, runner.workers());
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                         runner.Run(plan, workers, memory, {.checksums = !random.OneIn(4)}));
    for (const TaskReport& report : outcome.reports) EXPECT_OK(report.status);
    for (const auto& [device, report] : outcome.devices) {
      EXPECT_OK(report.status);
      EXPECT_OK(memory.CheckDestination(device));
    }
    EXPECT_OK(memory.CheckUntouched());
  }
  EXPECT_EQ(runner.Counters().staging_bytes_used, 0);
}

TEST(ExecutorRandom, EveryElementArrives) {
  RunCases(RandomCases(1500), {.workers = 3}, FromEnvironment("CROSSMESH_SEED", 1));
}

TEST(ExecutorRandom, EveryElementOfEveryReplayArrives) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 600'000);
  const int64_t cases = RandomCases(300);
  MeshRunner runner({.workers = 4,
                     .faults = {.seed = 7, .delay_probability = 0.2, .reorder_channels = true},
                     .executor = {.staging_bytes = 2 << 20}});
  for (int64_t i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    const Plan plan = RandomCase(random);
    TileMemory memory(plan);
    const std::vector<int32_t> workers = DealDevices(random, plan, runner.workers());
    EXPECT_OK(
        runner.RunReplays(plan, workers, memory, {.checksums = !random.OneIn(4), .instances = 4}));
    EXPECT_OK(memory.CheckUntouched());
  }
  EXPECT_EQ(runner.Counters().staging_bytes_used, 0);
}

TEST(ExecutorRandom, EveryElementArrivesThroughLittleStaging) {
  RunCases(RandomCases(300),
           {.workers = 4, .executor = {.staging_bytes = 2 << 20, .window_periods = 2}},
           FromEnvironment("CROSSMESH_SEED", 100'000));
}

TEST(ExecutorRandom, QuantizedElementsArriveWithTheirScales) {
  RunCases(RandomCases(40), {.workers = 3, .nics = {2, 1}},
           FromEnvironment("CROSSMESH_SEED", 500'000), RandomQuantizedCase);
}

TEST(ExecutorRandom, DelayAndReorderChangeNothing) {
  RunCases(
      RandomCases(400),
      {.workers = 4, .faults = {.seed = 5, .delay_probability = 0.3, .reorder_channels = true}},
      FromEnvironment("CROSSMESH_SEED", 200'000));
}

TEST(ExecutorRandom, EveryElementArrivesOverSeveralNics) {
  RunCases(RandomCases(400), {.workers = 4, .nics = {2, 1, 3}},
           FromEnvironment("CROSSMESH_SEED", 300'000));
}

// What is late on one lane arrives after what was sent later: chunks, checksums, openings.
TEST(ExecutorRandom, LanesThatOvertakeEachOtherChangeNothing) {
  RunCases(RandomCases(400),
           {.workers = 3,
            .faults = {.seed = 6, .delay_probability = 0.5, .delay_polls_max = 40},
            .executor = {.staging_bytes = 2 << 20},
            .nics = {3, 2}},
           FromEnvironment("CROSSMESH_SEED", 400'000));
}

}  // namespace
}  // namespace crossmesh
