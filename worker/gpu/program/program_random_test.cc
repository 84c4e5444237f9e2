// Random plans, compiled for every device and run on host memory: every destination element is
// right, in every order that the waits allow, and reports are those of the executor of host memory.
// CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/plan/proof.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/program/testing/device_programs.h"
#include "worker/gpu/program/testing/program_runner.h"
#include "worker/gpu/program/testing/random_programs.h"
#include "worker/gpu/program/testing/staging_order.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

void ExpectPeersAgree(const DevicePrograms& programs) {
  for (const auto& program : programs) {
    EXPECT_EQ(program->agreement(), programs[0]->agreement());
    for (const DeviceRank peer : program->peers()) {
      EXPECT_THAT(programs[peer]->peers(), testing::Contains(program->device()));
    }
  }
}

// Takes each wait away in turn.
void ExpectWaitsAreRightAndNeeded(const GpuProgram& program) {
  ASSERT_OK(ProveStagingOrder(program, program.steps()));
  std::vector<GpuProgram::Step> steps = program.steps();
  for (size_t s = 0; s < steps.size(); ++s) {
    for (int32_t GpuProgram::Step::* wait :
         {&GpuProgram::Step::pack_after_wire, &GpuProgram::Step::pack_after_unpack,
          &GpuProgram::Step::wire_after_unpack}) {
      const int32_t until = std::exchange(steps[s].*wait, kNoStep);
      if (until == kNoStep) continue;
      EXPECT_THAT(ProveStagingOrder(program, steps), StatusIs(absl::StatusCode::kInternal))
          << "step " << s << " need not wait for step " << until << "\n"
          << ToText(program);
      steps[s].*wait = until;
    }
  }
}

void ExpectReportsOfHostMemory(const Plan& plan, const ProgramRunner& runner, bool checksums,
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

class ProgramRandom : public testing::Test {
 protected:
  void CompileRunCompare(RandomSource& random, const Plan& plan) {
    ASSERT_OK(Prove(plan));
    ASSERT_OK_AND_ASSIGN(const DevicePrograms programs, RandomPrograms(random, plan));
    ExpectPeersAgree(programs);
    for (const auto& program : programs) ExpectWaitsAreRightAndNeeded(*program);
    TileMemory memory(plan);
    ASSERT_OK_AND_ASSIGN(const auto runner, ProgramRunner::Create(programs, memory));
    ASSERT_OK(runner->Run(random));
    for (DeviceRank device = 0; device < std::ssize(programs); ++device) {
      EXPECT_OK(memory.CheckDestination(device));
    }
    EXPECT_OK(memory.CheckUntouched());
    ExpectReportsOfHostMemory(plan, *runner, programs[0]->checksums(), hosts_);
  }

  template <typename MakePlan>
  void RunCases(MakePlan make_plan, int64_t cases, uint64_t seed) {
    cases = static_cast<int64_t>(FromEnvironment("CROSSMESH_CASES", cases));
    seed = FromEnvironment("CROSSMESH_SEED", seed);
    for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
      SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
      RandomSource random(seed + i);
      CompileRunCompare(random, make_plan(random));
    }
  }

  MeshRunner hosts_{{.workers = 1}};
};

TEST_F(ProgramRandom, EveryElementOfEveryStrategyArrives) { RunCases(RandomPlanned, 1000, 1); }

TEST_F(ProgramRandom, EveryElementOfDrawnPlansArrives) { RunCases(RandomDrawn, 1000, 100'000); }

TEST_F(ProgramRandom, QuantizedElementsArriveWithTheirScales) {
  RunCases(RandomQuantized, 50, 200'000);
}

TEST_F(ProgramRandom, EveryElementArrivesInBroadcastGroups) {
  const auto any = [](RandomSource& random) {
    return RandomBroadcast(random,
                           {.shards = random.Between(1, 3), .members = random.Between(3, 6)});
  };
  RunCases(any, 100, 300'000);
}

}  // namespace
}  // namespace crossmesh
