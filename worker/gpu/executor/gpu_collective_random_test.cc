// Redistributions whose steps are collectives of NCCL, on eight GPUs of the stand-in in processes
// of their own: what is gathered is that of host memory, bit for bit, and sums are within rounding.
// CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "tests/standin/rank_processes.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/random_compiled_parts.h"
#include "worker/gpu/executor/testing/collective_steps_case.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <cstdint>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr uint64_t kCollectiveSeed = 700'000;
constexpr int64_t kCollectiveCases = 16;
constexpr int64_t kGroupedCases = 12;

TEST(GpuCollectiveRandom, GathersAreExactAndSumsWithinRounding) {
  std::vector<CollectiveStepsCase> cases;
  EXPECT_OK(
      RunRandomCases(kCollectiveSeed, kCollectiveCases, [&](RandomSource& random) -> absl::Status {
        const auto seed = static_cast<uint64_t>(random.Below(int64_t{1} << 40));
        cases.emplace_back(seed, random.OneIn(2), !random.OneIn(4));
        return absl::OkStatus();
      }));
  int64_t calls = 0;
  for (const auto kind :
       {StepCollective::kAllGather, StepCollective::kReduceScatter, StepCollective::kAllReduce}) {
    for (const CollectiveStepsCase& of : cases) calls += of.CallsOf(kind, 0);
  }
  EXPECT_GE(calls, std::ssize(cases));
  const auto told = RunRanks(kCollectors, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(kCollectors, number, meeting));
    MeshRunner hosts(WithCourseRunners({.workers = 1}));
    for (size_t i = 0; i < cases.size(); ++i) {
      meeting.Wait();
      RETURN_IF_ERROR(At(absl::StrCat("case ", i), RunCollectives(*rank, number, cases[i], hosts)));
    }
    return rank->Close();
  });
  EXPECT_THAT(told, Each(IsEmpty()))
      << "Case i is of CROSSMESH_SEED=" << FromEnvironment("CROSSMESH_SEED", kCollectiveSeed)
      << " + i";
}

// The same over every choice of axes of a mesh, in groups that are parts, with ranks outside of
// them. Splits follow each other on one communicator, and take turns.
TEST(GpuCollectiveRandom, GroupsGatherAndSumByThemselves) {
  std::vector<CollectiveStepsCase> cases;
  int64_t splits = 0;
  int64_t outside = 0;
  uint64_t seed = 0;
  while (std::ssize(cases) < kGroupedCases) {
    ++seed;
    const CollectiveStepsCase of(seed, seed % 2 == 0, seed % 4 != 0,
                                 CollectiveStepsCase::Of::kGroups);
    if (of.Splits().empty()) continue;
    splits += std::ssize(of.Splits());
    for (const CommunicatorSplit& split : of.Splits()) {
      outside += std::ssize(split) * std::ssize(split.front()) < kCollectors ? 1 : 0;
    }
    cases.push_back(of);
  }
  EXPECT_LE(seed, 2 * kGroupedCases);  // most are collectives
  EXPECT_GE(splits, kGroupedCases);
  EXPECT_GE(outside, 1);
  const auto told = RunRanks(kCollectors, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(kCollectors, number, meeting));
    MeshRunner hosts(WithCourseRunners({.workers = 1}));
    for (size_t i = 0; i < cases.size(); ++i) {
      meeting.Wait();
      RETURN_IF_ERROR(At(absl::StrCat("case ", i), RunCollectives(*rank, number, cases[i], hosts)));
    }
    return rank->Close();
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

// Each level has groups, and so a split, of its own; the second adds what the first has left.
TEST(GpuCollective, SumsAreMadeInTwoLevels) {
  std::vector<CollectiveStepsCase> cases;
  for (const bool in_pieces : {false, true}) {
    const CollectiveStepsCase& of = cases.emplace_back(TwoLevelSums(in_pieces), true, true);
    EXPECT_EQ(of.Splits().size(), 2);
    const int64_t sums =
        of.CallsOf(StepCollective::kReduceScatter, 0) + of.CallsOf(StepCollective::kAllReduce, 0);
    EXPECT_GE(sums, 2 * 2);  // of two tensors
  }
  const auto told = RunRanks(kCollectors, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(kCollectors, number, meeting));
    MeshRunner hosts(WithCourseRunners({.workers = 1}));
    for (size_t i = 0; i < cases.size(); ++i) {
      meeting.Wait();
      RETURN_IF_ERROR(At(absl::StrCat("case ", i), RunCollectives(*rank, number, cases[i], hosts)));
    }
    return rank->Close();
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

// Twice one plan of several splits: the second time splits nothing.
TEST(GpuCollective, TheNextPlanOfTheSameGroupsFindsThemSplit) {
  const CollectiveStepsCase of(5, false, true, CollectiveStepsCase::Of::kGroups);
  ASSERT_EQ(of.Splits().size(), 2);
  const auto told = RunRanks(kCollectors, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(kCollectors, number, meeting));
    MeshRunner hosts(WithCourseRunners({.workers = 1}));
    for (int run = 0; run < 2; ++run) {
      meeting.Wait();
      RETURN_IF_ERROR(RunCollectives(*rank, number, of, hosts));
    }
    const int64_t splits = CallsNamed(*rank, "ncclCommSplit");
    RETURN_IF_ERROR(rank->Close());
    if (splits == std::ssize(of.Splits())) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("expected ", of.Splits().size(), " splits, found ", splits));
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

// Host memory does not look at collectives, and has the arrays of summands that they do without.
TEST(GpuCollective, HostMemoryCarriesOutTheSamePlan) {
  MeshRunner hosts(WithCourseRunners({.workers = 2}));
  for (uint64_t seed = 1; seed < 9; ++seed) {
    const CollectiveStepsCase of(
        seed, true, true,
        seed % 2 == 0 ? CollectiveStepsCase::Of::kGroups : CollectiveStepsCase::Of::kAll);
    TileMemory memory(of.plan);
    FillNumbers(of.plan, memory, seed);
    ASSERT_OK(hosts.Run(of.plan, std::vector<int32_t>{0, 1, 0, 1, 0, 1, 0, 1}, memory, {}));
    for (DeviceRank device = 0; device < kCollectors; ++device) {
      EXPECT_OK(CheckWithinRounding(of, memory, device)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace crossmesh
