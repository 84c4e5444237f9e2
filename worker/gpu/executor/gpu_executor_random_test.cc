// Random plans on GPUs of the stand-in, eight ranks in processes of their own: every destination
// element is what gathering and slicing gives, and reports are those of the executor of host
// memory. CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/base/status_macros.h"
#include "common/plan/testing/random_source.h"
#include "tests/standin/rank_processes.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/random_compiled_parts.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int kRanks = 8;

absl::Status ExpectReportOfHostMemory(const Plan& plan, const CompiledPart& compiled,
                                      const TaskReport& found, MeshRunner& hosts) {
  TileMemory memory(plan);
  ASSIGN_OR_RETURN(const MeshOutcome outcome,
                   hosts.Run(plan, std::vector<int32_t>(plan.tensors().devices().size(), 0), memory,
                             {.checksums = compiled.checksums()}));
  const auto expected = outcome.devices.find(compiled.device());
  if (expected == outcome.devices.end()) {
    return found.devices.empty() ? absl::OkStatus() : absl::InternalError("a report of no device");
  }
  if (found.devices.size() == 1 && found.devices[0].bytes == expected->second.bytes &&
      found.devices[0].digest == expected->second.digest) {
    return absl::OkStatus();
  }
  return absl::InternalError("another report than that of host memory");
}

absl::Status RunCase(ExecutorRank& rank, int number, Meeting& meeting, MakePlan make_plan,
                     RandomSource& random, MeshRunner& hosts) {
  const Plan plan = RandomOfSize(kRanks, make_plan, random);
  ASSIGN_OR_RETURN(const CompiledParts compiled_parts, RandomCompiledParts(random, plan));
  // A rank without a part in the last plans is ahead, and would take the others for stalled.
  meeting.Wait();
  if (number >= std::ssize(compiled_parts)) return absl::OkStatus();
  const TileMemory memory(plan);
  ASSIGN_OR_RETURN(GpuTaskSpec spec, rank.Spec(compiled_parts[number], memory));
  ASSIGN_OR_RETURN(const TaskReport report, rank.Run(std::move(spec)));
  RETURN_IF_ERROR(memory.CheckDestination(number));
  RETURN_IF_ERROR(memory.CheckUntouched());
  return ExpectReportOfHostMemory(plan, *compiled_parts[number], report, hosts);
}

// Which random plans: of so many seeds, from one on. Devices exchange messages in so many groups.
struct Cases {
  MakePlan make_plan;
  uint64_t seed = 0;
  int64_t count = 0;
  int groups = 1;
};

absl::Status RunCases(int number, Meeting& meeting, const Cases& chosen) {
  ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
  RETURN_IF_ERROR(rank->JoinGroups(chosen.groups, kRanks, number, meeting));
  MeshRunner hosts({.workers = 1});
  RETURN_IF_ERROR(RunRandomCases(chosen.seed, chosen.count, [&](RandomSource& random) {
    return RunCase(*rank, number, meeting, chosen.make_plan, random, hosts);
  }));
  return rank->Close();
}

void ExpectAllRight(const Cases& cases) {
  const std::vector<std::string> results = RunRanks(
      kRanks, [&](int number, Meeting& meeting) { return RunCases(number, meeting, cases); });
  EXPECT_THAT(results, testing::Each(testing::IsEmpty()));
}

TEST(GpuExecutorRandom, EveryElementOfEveryStrategyArrives) {
  ExpectAllRight({RandomPlanned, 1, 40});
}

TEST(GpuExecutorRandom, EveryElementOfDrawnPlansArrives) {
  ExpectAllRight({RandomDrawn, 100'000, 40});
}

TEST(GpuExecutorRandom, QuantizedElementsArriveWithTheirScales) {
  ExpectAllRight({RandomQuantized, 200'000, 15});
}

TEST(GpuExecutorRandom, EveryElementArrivesInBroadcastGroups) {
  const MakePlan in_two_groups = [](RandomSource& random) {
    return RandomBroadcast(random, {.shards = 2, .members = kRanks / 2});
  };
  ExpectAllRight({in_two_groups, 300'000, 40, 2});
}

}  // namespace
}  // namespace crossmesh
