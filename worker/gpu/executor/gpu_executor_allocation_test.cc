// What a task allocates while it runs.

#include "common/base/status_macros.h"
#include "common/testing/allocations/count_allocations.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/executor/testing/chain_task.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr int64_t kSteps = 24;

// Is this thread in a call of a stand-in? They are libraries of their own folder, and may allocate
// what they like.
bool IsInStandIn() {
  std::array<void*, 64> frames;
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  return std::any_of(frames.begin(), frames.begin() + count, [](void* frame) {
    Dl_info library;
    return dladdr(frame, &library) != 0 && std::strstr(library.dli_fname, "/standin/") != nullptr;
  });
}

// Runs the task; gives what was allocated in the middle of its steps, since a look at the GPU may
// find the last ones done and make the report.
absl::StatusOr<int64_t> AllocationsOfSteps(ExecutorRank& rank, const GpuTaskSpec& spec) {
  AwaitedReport awaited;
  RETURN_IF_ERROR(rank.executor().Start(spec, awaited));
  const auto done = [&] { return rank.executor().StepsDone(spec.key).value_or(kSteps); };
  rank.RunUntil([&] { return done() > 0; });
  const int64_t allocations =
      CountAllocations([&] { rank.RunUntil([&] { return done() >= kSteps / 2; }); }, IsInStandIn);
  if (awaited.is_there()) return absl::InternalError("the task ended too soon");
  rank.RunUntil([&] { return awaited.is_there(); });
  RETURN_IF_ERROR(awaited.status());
  return allocations;
}

TEST(GpuExecutorAllocationTest, AThousandReplaysAllocateNothing) {
  const auto told = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(3, number, meeting));
    const ChainTask chain = ChainTask::OfSmallRelays(kSteps);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[number], chain.memory));
    RETURN_IF_ERROR(rank->Run(spec).status());
    for (uint32_t replay = 1; replay <= 1000; ++replay) {
      spec.key.instance = replay;
      ASSIGN_OR_RETURN(const int64_t allocated, AllocationsOfSteps(*rank, spec));
      if (allocated == 0) continue;
      return absl::InternalError(absl::StrCat("replay ", replay, ": ", allocated, " allocations"));
    }
    spec = {};
    return rank->Close();
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

}  // namespace
}  // namespace crossmesh
