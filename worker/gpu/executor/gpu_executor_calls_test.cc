// What a task calls while it runs.

#include "common/base/status_macros.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/small_plans.h"
#include "worker/gpu/executor/gpu_binding.h"
#include "worker/gpu/executor/testing/chain_task.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr int64_t kSteps = 24;
// What a receiver of the stand-in keeps for each sender.
constexpr int64_t kConnectionBytes = 4 << 20;

// All that a task may call from its first step to its last.
const std::set<std::string> kCallsOfSteps = {"cuEventQuery",
                                             "cuEventRecord",
                                             "cuLaunchKernel",
                                             "cuStreamWaitEvent",
                                             "ncclCommGetAsyncError",
                                             "ncclGroupEnd",
                                             "ncclGroupStart",
                                             "ncclRecv",
                                             "ncclSend"};

absl::Status ExpectCalls(const std::vector<StandInCall>& calls, size_t begin,
                         const std::set<std::string>& expected) {
  for (size_t i = begin; i < calls.size(); ++i) {
    if (expected.contains(calls[i].name)) continue;
    return absl::InternalError(absl::StrCat("call ", i - begin, " is ", calls[i].name));
  }
  return absl::OkStatus();
}

size_t AfterTheLast(const std::vector<StandInCall>& calls, const std::string& name) {
  const auto found = std::find_if(calls.rbegin(), calls.rend(),
                                  [&](const StandInCall& call) { return call.name == name; });
  return calls.rend() - found;
}

TEST(GpuExecutorCallsTest, StepsAreLaunchesEventsAndGroups) {
  const auto told = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(3, number, meeting));
    const ChainTask chain = ChainTask::OfSmallRelays(kSteps);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[number], chain.memory));
    // Kept, so that it is not given back within what is looked at.
    const std::shared_ptr<GpuBinding> binding = spec.binding;
    RETURN_IF_ERROR(rank->Run(std::move(spec)).status());
    const std::vector<StandInCall> calls = rank->stand_in().Calls();
    // What senders have told is read once they have agreed; the root, which hears of none, copies
    // what it tells.
    const size_t first =
        AfterTheLast(calls, number == 0 ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync");
    if (calls.size() - first < kSteps) return absl::InternalError("too few calls");
    return ExpectCalls(calls, first, kCallsOfSteps);
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

// NCCL connects two ranks for each direction by itself, and what receives has the buffers.
TEST(GpuExecutorCallsTest, RanksAreConnectedTheWayThatTheirMessagesGo) {
  const auto told = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(3, number, meeting));
    const ChainTask chain = ChainTask::OfSmallRelays(kSteps);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[number], chain.memory));
    const std::shared_ptr<GpuBinding> binding = spec.binding;
    const int64_t before = rank->FreeBytes();
    RETURN_IF_ERROR(rank->Run(std::move(spec)).status());
    const int64_t connections = (before - rank->FreeBytes()) / kConnectionBytes;
    if (connections == (number == 0 ? 0 : 1)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(connections, " connections to receive by"));
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

int64_t Count(const std::vector<StandInCall>& calls, size_t begin, absl::string_view name) {
  return std::count_if(calls.begin() + static_cast<ptrdiff_t>(begin), calls.end(),
                       [&](const StandInCall& call) { return call.name == name; });
}

// Runs what makes a rank's task; gives an error unless it launched so many kernels.
absl::Status ExpectLaunches(ExecutorRank& rank, GpuTaskSpec spec, int64_t expected) {
  const std::shared_ptr<GpuBinding> binding = spec.binding;
  const size_t first = rank.stand_in().Calls().size();
  RETURN_IF_ERROR(rank.Run(std::move(spec)).status());
  const int64_t launches = Count(rank.stand_in().Calls(), first, "cuLaunchKernel");
  if (launches == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(launches, " launches"));
}

// The root packs, both others unpack; a rank that passes chunks on launches nothing for it.
TEST(GpuExecutorCallsTest, AStepOfManyChunksIsOneLaunch) {
  const auto told = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(3, number, meeting));
    const ChainTask chain =
        ChainTask::OfRelays({.relays = 8, .steps = kSteps}, /*staging_bytes=*/6 << 20);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[number], chain.memory));
    RETURN_IF_ERROR(ExpectLaunches(*rank, std::move(spec), kSteps));
    RETURN_IF_ERROR(chain.memory.CheckDestination(number));
    return rank->Close();
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

TEST(GpuExecutorCallsTest, AStepThatPacksUnpacksAndCopiesIsThreeLaunches) {
  const auto told = RunRanks(2, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(2, number, meeting));
    // All that is copied is in the first step.
    const Plan plan = Made(ExchangeBesideCopies(kSteps, 5 * Plan::kLeafBytes + 100));
    ASSIGN_OR_RETURN(const CompiledParts compiled_parts,
                     CompiledPartsOf(plan, {.staging_bytes = 6 << 20}));
    const TileMemory memory(plan);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(compiled_parts[number], memory));
    RETURN_IF_ERROR(ExpectLaunches(*rank, std::move(spec), 2 * kSteps + 1));
    RETURN_IF_ERROR(memory.CheckDestination(number));
    return rank->Close();
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

// Packs of later steps would keep them waiting.
TEST(GpuExecutorCallsTest, TransfersGoBeforeKernels) {
  const auto told = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(3, number, meeting));
    const ChainTask chain = ChainTask::OfSmallRelays(kSteps);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[number], chain.memory));
    RETURN_IF_ERROR(rank->Run(std::move(spec)).status());
    int least = 0;
    int greatest = 0;
    rank->stand_in().driver().cuCtxGetStreamPriorityRange(&least, &greatest);
    for (const StandInCall& call : rank->stand_in().Calls()) {
      const absl::string_view name = call.name;
      if (name != "ncclSend" && name != "ncclRecv" && name != "cuLaunchKernel") continue;
      const int priority = rank->stand_in().PriorityOf(call.stream);
      if (priority == (name == "cuLaunchKernel" ? least : greatest)) continue;
      return absl::InternalError(absl::StrCat(name, " with priority ", priority));
    }
    return rank->Close();
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

TEST(GpuExecutorCallsTest, StepsOfABroadcastGroupAreLaunchesEventsAndBroadcasts) {
  const auto told = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(3, number, meeting));
    const ChainTask group = ChainTask::OfBroadcasts(kSteps);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(group.compiled_parts[number], group.memory));
    const std::shared_ptr<GpuBinding> binding = spec.binding;
    ASSIGN_OR_RETURN(const TaskReport report, rank->Run(std::move(spec)));
    constexpr int64_t kBytes = kSteps * Plan::kLeafBytes;
    if ((number == 0 ? report.sent_bytes : report.received_bytes) != kBytes) {
      return absl::InternalError("other bytes are reported than were moved");
    }
    const std::vector<StandInCall> calls = rank->stand_in().Calls();
    const size_t first = AfterTheLast(calls, "cuMemcpyDtoHAsync");
    const int64_t broadcasts = Count(calls, first, "ncclBroadcast");
    if (broadcasts != kSteps) {
      return absl::InternalError(absl::StrCat(broadcasts, " broadcasts"));
    }
    std::set<std::string> expected = kCallsOfSteps;
    expected.erase("ncclSend");
    expected.erase("ncclRecv");
    expected.insert("ncclBroadcast");
    return ExpectCalls(calls, first, expected);
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

TEST(GpuExecutorCallsTest, ScalesAreLaunchesAndEventsAsWell) {
  const auto told = RunRanks(1, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(1, number, meeting));
    const Plan plan = Made(QuantizedOnOneDevice());
    ASSIGN_OR_RETURN(const CompiledParts compiled_parts, CompiledPartsOf(plan, {}));
    const TileMemory memory(plan);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(compiled_parts[0], memory));
    RETURN_IF_ERROR(rank->Run(spec).status());
    const size_t calls_before = rank->stand_in().Calls().size();
    spec.key.instance = 1;
    RETURN_IF_ERROR(rank->Run(spec).status());
    RETURN_IF_ERROR(ExpectCalls(rank->stand_in().Calls(), calls_before, kCallsOfSteps));
    spec = {};
    return rank->Close();
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

// Whatever is prepared anew for a replay comes from memory that the first run has taken.
TEST(GpuExecutorCallsTest, ReplaysCallNoMoreThanTheirSteps) {
  const auto told = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(3, number, meeting));
    const ChainTask chain = ChainTask::OfSmallRelays(kSteps);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[number], chain.memory));
    RETURN_IF_ERROR(rank->Run(spec).status());
    const int64_t free_bytes = rank->FreeBytes();
    const size_t calls_before = rank->stand_in().Calls().size();
    for (uint32_t replay = 1; replay <= 20; ++replay) {
      spec.key.instance = replay;
      RETURN_IF_ERROR(rank->Run(spec).status());
    }
    if (rank->FreeBytes() != free_bytes) return absl::InternalError("memory of the GPU is gone");
    std::set<std::string> expected = kCallsOfSteps;
    expected.insert({"cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemGetInfo"});
    RETURN_IF_ERROR(ExpectCalls(rank->stand_in().Calls(), calls_before, expected));
    spec = {};
    return rank->Close();
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

}  // namespace
}  // namespace crossmesh
