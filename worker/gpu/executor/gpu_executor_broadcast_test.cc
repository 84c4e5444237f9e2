// Tasks of a broadcast group: who may take part, and what becomes of it when a rank cannot go on.

#include "common/base/status_macros.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/executor/testing/chain_task.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kChunks = 32;
// Longer than a rank may have to wait for a processor.
constexpr absl::Duration kStallLimit = absl::Seconds(1);

// What each of `ranks` is told of a task, of which the first three are a group.
std::vector<std::string> RunGroup(
    int ranks,
    absl::FunctionRef<absl::Status(ExecutorRank& rank, int number, GpuTaskSpec& spec)> disturb) {
  return RunRanks(ranks, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank,
                     ExecutorRank::Create(number, {.staging_bytes = int64_t{2} << 20}));
    RETURN_IF_ERROR(rank->JoinAll(ranks, number, meeting));
    const ChainTask group = ChainTask::OfBroadcasts(kChunks);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(group.compiled_parts[number % 3], group.memory));
    spec.stall_limit = kStallLimit;
    RETURN_IF_ERROR(disturb(*rank, number, spec));
    const absl::Status status = rank->Run(std::move(spec)).status();
    if (!status.ok()) RETURN_IF_ERROR(rank->AwaitStopped());
    return status;
  });
}

TEST(GpuExecutorBroadcastTest, AGroupHasItsCommunicatorForItself) {
  const auto told =
      RunGroup(4, [](ExecutorRank& rank, int number, GpuTaskSpec& spec) -> absl::Status {
        AwaitedReport never;
        const absl::Status refused = rank.executor().Start(spec, never);
        return number < 3 ? refused : absl::InvalidArgumentError("expected 3 ranks, found 4");
      });
  EXPECT_THAT(told,
              Each(AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("expected 3 ranks, found 4"))));
}

TEST(GpuExecutorBroadcastTest, ARankInAnotherReplayIsToldOfByAllOthers) {
  const auto told = RunGroup(3, [](ExecutorRank&, int number, GpuTaskSpec& spec) {
    if (number == 1) spec.key.instance = 7;
    return absl::OkStatus();
  });
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("device b.0 does not run the same"),
                                      HasSubstr("found compiled part"), HasSubstr("instance 7")),
                                HasSubstr("device a.0 does not run the same"),
                                HasSubstr("device b.0 does not run the same")));
}

TEST(GpuExecutorBroadcastTest, ARankThatDiesStallsItsGroup) {
  const auto told = RunGroup(3, [](ExecutorRank& rank, int number, GpuTaskSpec& spec) {
    if (number != 2) return absl::OkStatus();
    AwaitedReport never;
    const absl::Status started = rank.executor().Start(spec, never);
    if (!started.ok()) return started;
    rank.RunUntil([&] { return rank.executor().MovedBytes(spec.key).value_or(0) > 0; });
    kill(getpid(), SIGKILL);
    return absl::OkStatus();
  });
  const auto stalled = AllOf(HasSubstr("UNAVAILABLE: stalled, nothing was done for 1s"),
                             HasSubstr("broadcast from a.0"));
  EXPECT_THAT(told, ElementsAre(stalled, stalled, "killed by signal 9"));
}

}  // namespace
}  // namespace crossmesh
