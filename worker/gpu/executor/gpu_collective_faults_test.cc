// What becomes of redistributions by collectives of NCCL, on GPUs of the stand-in, when a call does
// not come to its end or bytes change; and that the ranks run the next one.

#include "common/base/status_macros.h"
#include "common/plan/testing/random_source.h"
#include "tests/standin/rank_processes.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/executor/testing/collective_steps_case.h"
#include "worker/gpu/executor/testing/executor_rank.h"
#include "worker/gpu/executor/testing/tiles_on_gpu.h"

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kGroupedGatherSeed = 5;  // whose plan splits

using DisturbCollective = absl::FunctionRef<absl::Status(ExecutorRank&, int number, GpuTaskSpec&)>;

// What each rank is told of sums that are gathered, unless it is killed, and of the next ones over
// another communicator.
std::vector<std::string> RunDisturbedCollectives(
    DisturbCollective disturb, bool sums,
    CollectiveStepsCase::Of groups = CollectiveStepsCase::Of::kAll) {
  return RunRanks(kCollectors, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(kCollectors, number, meeting));
    const CollectiveStepsCase of(sums                                      ? 4
                                 : groups == CollectiveStepsCase::Of::kAll ? 3
                                                                           : kGroupedGatherSeed,
                                 sums, true, groups);
    absl::Status told;
    {
      const TileMemory memory(of.plan);
      if (sums) FillNumbers(of.plan, memory, 1);
      RandomSource random(number);
      ASSIGN_OR_RETURN(const TilesOnGpu tiles,
                       TilesOnGpu::Create(rank->gpu(), of.plan, number, memory, random));
      ASSIGN_OR_RETURN(GpuTaskSpec spec, SpecOfCollective(of, *rank, number, tiles.gpu()));
      spec.stall_limit = absl::Seconds(1);
      told = disturb(*rank, number, spec);
      if (told.ok()) told = rank->Run(std::move(spec)).status();
      // As the controller, which has heard of the failure of another group.
      if (told.ok()) rank->StopCommunicator(rank->communicator(), absl::CancelledError("failed"));
    }
    RETURN_IF_ERROR(rank->AwaitStopped());
    RETURN_IF_ERROR(rank->stand_in().SetFaults(""));
    RETURN_IF_ERROR(rank->JoinAll(kCollectors, number, meeting));
    MeshRunner hosts(WithCourseRunners({.workers = 1}));
    RETURN_IF_ERROR(RunCollectives(*rank, number, of, hosts));
    RETURN_IF_ERROR(rank->Close());
    return told;
  });
}

const auto kCollectiveStalled = AllOf(HasSubstr("UNAVAILABLE: stalled"), HasSubstr("missing: "));

// The second operation is the first call after the ranks have agreed.
TEST(GpuCollective, AStallIsNoticedByAllAndSaysWhichCollective) {
  const auto told = RunDisturbedCollectives(
      [](ExecutorRank& rank, int number, GpuTaskSpec&) {
        return rank.stand_in().SetFaults(number == 5 ? "stall_at=2" : "");
      },
      false);
  EXPECT_THAT(told, Each(AllOf(kCollectiveStalled, HasSubstr("all-gather of all tensors"))));
}

TEST(GpuCollective, ACommunicatorThatFailsFailsTheTaskWithItsWords) {
  const auto told = RunDisturbedCollectives(
      [](ExecutorRank& rank, int number, GpuTaskSpec&) {
        return rank.stand_in().SetFaults(number == 2 ? "async_error_at=2" : "");
      },
      true);
  EXPECT_THAT(told,
              Contains(AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("async_error_at"))).Times(1));
  EXPECT_THAT(told, Contains(kCollectiveStalled).Times(kCollectors - 1));
}

TEST(GpuCollective, ATaskThatIsLateEndsAtAllRanks) {
  const auto told = RunDisturbedCollectives(
      [](ExecutorRank& rank, int number, GpuTaskSpec& spec) -> absl::Status {
        if (number != 0) return absl::OkStatus();
        spec.deadline = absl::Milliseconds(300);
        return rank.stand_in().SetFaults("stall_at=2");
      },
      true);
  EXPECT_THAT(told, Contains(HasSubstr("DEADLINE_EXCEEDED")).Times(1));
  EXPECT_THAT(told, Contains(kCollectiveStalled).Times(kCollectors - 1));
}

// In one of the groups. What has failed there fails the whole, and the next ones split anew.
TEST(GpuCollective, AFailureInAGroupEndsTheTaskAtAllRanks) {
  const auto told = RunDisturbedCollectives(
      [](ExecutorRank& rank, int number, GpuTaskSpec&) {
        return rank.stand_in().SetFaults(number == 2 ? "async_error_at=2" : "");
      },
      true, CollectiveStepsCase::Of::kGroups);
  EXPECT_THAT(told,
              Contains(AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("async_error_at"))).Times(1));
  EXPECT_THAT(told, Contains(AllOf(kCollectiveStalled, HasSubstr("of all tensors among ")))
                        .Times(testing::Ge(1)));
}

// At one rank; the others wait for it until that counts as a stall.
TEST(GpuCollective, ASplitThatFailsEndsTheTaskAtAllRanks) {
  const auto told = RunDisturbedCollectives(
      [](ExecutorRank& rank, int number, GpuTaskSpec& spec) {
        spec.stall_limit = absl::Milliseconds(300);
        return rank.stand_in().SetFaults(number == 3 ? "init_fails=1" : "");
      },
      false, CollectiveStepsCase::Of::kGroups);
  EXPECT_THAT(told, Contains(AllOf(HasSubstr("ncclCommSplit"), HasSubstr("init_fails"))).Times(1));
  EXPECT_THAT(told, Contains(AllOf(kCollectiveStalled, HasSubstr("split 0 of the communicator")))
                        .Times(testing::Ge(1)));
  EXPECT_THAT(told, Each(Not(IsEmpty())));
}

// Of the bytes of a gather, or of its hashes. Nothing harms the communicator.
TEST(GpuCollective, BytesThatChangeInAGatherAreFoundAndNamed) {
  for (const char* const fault : {"corrupt_at=2", "corrupt_at=3"}) {
    const auto told = RunRanks(kCollectors, [&](int number, Meeting& meeting) -> absl::Status {
      ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
      RETURN_IF_ERROR(rank->JoinAll(kCollectors, number, meeting));
      const CollectiveStepsCase of(3, false);
      absl::Status told;
      {
        const TileMemory memory(of.plan);
        RandomSource random(number);
        ASSIGN_OR_RETURN(const TilesOnGpu tiles,
                         TilesOnGpu::Create(rank->gpu(), of.plan, number, memory, random));
        ASSIGN_OR_RETURN(GpuTaskSpec spec, SpecOfCollective(of, *rank, number, tiles.gpu()));
        if (number == 1) RETURN_IF_ERROR(rank->stand_in().SetFaults(fault));
        told = rank->Run(std::move(spec)).status();
      }
      RETURN_IF_ERROR(rank->stand_in().SetFaults(""));
      MeshRunner hosts(WithCourseRunners({.workers = 1}));
      RETURN_IF_ERROR(RunCollectives(*rank, number, of, hosts));
      RETURN_IF_ERROR(rank->Close());
      return told;
    });
    EXPECT_THAT(told, Contains(AllOf(HasSubstr("DATA_LOSS: step 0: "), HasSubstr("expected hash"))))
        << fault;
    EXPECT_THAT(told, Each(AnyOf(IsEmpty(), HasSubstr("DATA_LOSS: step 0: ")))) << fault;
  }
}

TEST(GpuCollective, TheLossOfAProcessIsNoticedByTheOthers) {
  const auto told = RunRanks(kCollectors, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(kCollectors, number, meeting));
    absl::Status told;
    {
      const CollectiveStepsCase of(4, true);
      const TileMemory memory(of.plan);
      FillNumbers(of.plan, memory, 1);
      RandomSource random(number);
      ASSIGN_OR_RETURN(const TilesOnGpu tiles,
                       TilesOnGpu::Create(rank->gpu(), of.plan, number, memory, random));
      ASSIGN_OR_RETURN(GpuTaskSpec spec, SpecOfCollective(of, *rank, number, tiles.gpu()));
      spec.stall_limit = absl::Seconds(1);
      if (number == 2) kill(getpid(), SIGKILL);
      told = rank->Run(std::move(spec)).status();
    }
    RETURN_IF_ERROR(rank->AwaitStopped());
    RETURN_IF_ERROR(rank->Close());
    return told;
  });
  EXPECT_THAT(told, Contains("killed by signal 9").Times(1));
  EXPECT_THAT(told, Contains(kCollectiveStalled).Times(kCollectors - 1));
}

TEST(GpuCollective, RanksInAnotherOrderThanDevicesAreRefused) {
  const auto told = RunRanks(kCollectors, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(kCollectors, number, meeting));
    absl::Status told;
    {
      const CollectiveStepsCase of(3, false);
      const TileMemory memory(of.plan);
      RandomSource random(number);
      ASSIGN_OR_RETURN(const TilesOnGpu tiles,
                       TilesOnGpu::Create(rank->gpu(), of.plan, number, memory, random));
      ASSIGN_OR_RETURN(GpuTaskSpec spec, SpecOfCollective(of, *rank, number, tiles.gpu()));
      std::swap(spec.ranks[2], spec.ranks[3]);
      told = rank->Run(std::move(spec)).status();
    }
    RETURN_IF_ERROR(rank->Close());
    return told;
  });
  EXPECT_THAT(told, Each(HasSubstr("INVALID_ARGUMENT")));
  // The two that were exchanged do not find themselves.
  EXPECT_THAT(told,
              Contains(HasSubstr("expected the order of its devices")).Times(kCollectors - 2));
}

}  // namespace
}  // namespace crossmesh
