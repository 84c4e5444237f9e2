// Random plans, compiled for every device and run on host memory: every destination element is
// right, in every order that the waits allow, and reports are those of the executor of host memory.
// CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/plan/proof.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/compiled_part_runner.h"
#include "worker/gpu/compiler/testing/compiled_part_text.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/random_compiled_parts.h"
#include "worker/gpu/compiler/testing/staging_order.h"

#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

void ExpectPeersAgree(const CompiledParts& compiled_parts) {
  for (const auto& compiled : compiled_parts) {
    EXPECT_EQ(compiled->agreement(), compiled_parts[0]->agreement());
    for (const DeviceRank peer : compiled->peers()) {
      EXPECT_THAT(compiled_parts[peer]->peers(), testing::Contains(compiled->device()));
    }
  }
}

// Takes each wait away in turn.
void ExpectWaitsAreRightAndNeeded(const CompiledPart& compiled) {
  ASSERT_OK(ProveStagingOrder(compiled, compiled.steps()));
  std::vector<CompiledPart::Step> steps = compiled.steps();
  for (size_t s = 0; s < steps.size(); ++s) {
    for (int32_t CompiledPart::Step::* wait :
         {&CompiledPart::Step::pack_after_wire, &CompiledPart::Step::pack_after_unpack,
          &CompiledPart::Step::wire_after_unpack}) {
      const int32_t until = std::exchange(steps[s].*wait, kNoStep);
      if (until == kNoStep) continue;
      EXPECT_THAT(ProveStagingOrder(compiled, steps), StatusIs(absl::StatusCode::kInternal))
          << "step " << s << " need not wait for step " << until << "\n"
          << ToText(compiled);
      steps[s].*wait = until;
    }
  }
}

void ExpectReportsOfHostMemory(const Plan& plan, const CompiledPartRunner& runner, bool checksums,
                               MeshRunner& hosts) {
  TileMemory memory(plan);
  ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                       hosts.Run(plan, std::vector<int32_t>(plan.tensors().devices().size(), 0),
                                 memory, {.checksums = checksums}));
  for (const auto& [device, expected] : outcome.devices) {
    const DeviceReport report = runner.ReportOf(device);
    EXPECT_OK(report.status);
    EXPECT_EQ(report.bytes, expected.bytes);
    EXPECT_EQ(report.digest, expected.digest);
  }
}

class PartRandom : public testing::Test {
 protected:
  void CompileRunCompare(RandomSource& random, const Plan& plan) {
    ASSERT_OK(Prove(plan));
    ASSERT_OK_AND_ASSIGN(const CompiledParts compiled_parts, RandomCompiledParts(random, plan));
    ExpectPeersAgree(compiled_parts);
    for (const auto& compiled : compiled_parts) ExpectWaitsAreRightAndNeeded(*compiled);
    TileMemory memory(plan);
    CompiledPartRunner runner(compiled_parts, memory);
    ASSERT_OK(runner.Run(random));
    for (DeviceRank device = 0; device < std::ssize(compiled_parts); ++device) {
      EXPECT_OK(memory.CheckDestination(device));
    }
    EXPECT_OK(memory.CheckUntouched());
    ExpectReportsOfHostMemory(plan, runner, compiled_parts[0]->checksums(), hosts_);
  }

  template <typename MakePlan>
  void RunCases(MakePlan make_plan, int64_t cases, uint64_t seed) {
    cases = RandomCases(cases);
    seed = FromEnvironment("CROSSMESH_SEED", seed);
    for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
      SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
      RandomSource random(seed + i);
      CompileRunCompare(random, make_plan(random));
    }
  }

  MeshRunner hosts_{{.workers = 1}};
};

TEST_F(PartRandom, EveryElementOfEveryStrategyArrives) { RunCases(RandomPlanned, 1000, 1); }

TEST_F(PartRandom, EveryElementOfDrawnPlansArrives) { RunCases(RandomDrawn, 1000, 100'000); }

TEST_F(PartRandom, QuantizedElementsArriveWithTheirScales) {
  RunCases(RandomQuantized, 50, 200'000);
}

TEST_F(PartRandom, EveryElementArrivesInBroadcastGroups) {
  const auto any = [](RandomSource& random) {
    return RandomBroadcast(random,
                           {.shards = random.Between(1, 3), .members = random.Between(3, 6)});
  };
  RunCases(any, 100, 300'000);
}

}  // namespace
}  // namespace crossmesh
