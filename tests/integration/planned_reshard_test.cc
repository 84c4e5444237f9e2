// The whole path below the daemons: random layouts on random meshes are planned by every strategy,
// proven, cut into parts and executed in process; every destination element is compared.
// CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/mesh/topology.h"
#include "common/plan/proof.h"
#include "common/plan/testing/random_source.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/reshard/plan_reshard.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kCases = 2400;

ReshardRequest RandomRequest(RandomSource& random) {
  ReshardRequest request;
  request.tensors = std::make_shared<const TensorTable>(RandomTensorTable(random));
  request.topology = RandomTopology(random, *request.tensors,
                                    {.bytes_per_second = 1'000'000, .undescribed = true});
  // The default strategy most of the time, each other one often enough.
  request.strategy =
      random.OneIn(2) ? Strategy::kRelay : kAllStrategies[random.Below(kAllStrategies.size())];
  request.seed = static_cast<uint64_t>(random.Below(1000));
  request.chunk_bytes = Plan::kLeafBytes * random.Between(1, 2);
  return request;
}

void PlanProveExecuteCompare(RandomSource& random, MeshRunner& runner) {
  const ReshardRequest request = RandomRequest(random);
  SCOPED_TRACE(absl::StrCat("strategy ", StrategyName(request.strategy)));
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  ASSERT_OK(Prove(plan));
  EXPECT_GE(plan.figures().predicted_seconds, plan.figures().bound.seconds * (1 - 1e-9));
  TileMemory memory(plan);
  ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                       runner.Run(plan, DealDevices(random, plan, runner.workers()), memory,
                                  {.checksums = !random.OneIn(4)}));
  for (const auto& [device, report] : outcome.devices) {
    EXPECT_OK(report.status);
    EXPECT_OK(memory.CheckDestination(device));
  }
  EXPECT_OK(memory.CheckUntouched());
}

TEST(PlannedReshard, EveryElementOfEveryStrategyArrives) {
  const int64_t cases = RandomCases(kCases);
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
  MeshRunner runner({.workers = 4});
  for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    PlanProveExecuteCompare(random, runner);
  }
}

TEST(PlannedReshard, EqualRequestsGiveTheSamePlan) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    RandomSource once(seed);
    RandomSource again(seed);
    ASSERT_OK_AND_ASSIGN(const Plan first, PlanReshard(RandomRequest(once)));
    ASSERT_OK_AND_ASSIGN(const Plan second, PlanReshard(RandomRequest(again)));
    EXPECT_EQ(first.id(), second.id()) << "seed " << seed;
    EXPECT_EQ(ToText(first), ToText(second)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace crossmesh
