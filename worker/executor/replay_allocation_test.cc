#include "common/testing/allocations/count_allocations.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/testing/replay_fixture.h"

#include <cstdint>
#include <utility>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST_F(ReplayTest, InstancesInsideAWorkerAllocateNothing) {
  const Plan plan = MakePlan("a.0", "a.1-2");
  ASSERT_OK(Runner(0).StartReplays(MakeReplays(0, plan), replays_[0]));
  const auto replay = [&](uint32_t instance) {
    Send(instance);
    RunUntil("the instance to end", [&] { return replays_[0].done.size() == instance + 1; });
  };
  for (uint32_t instance = 0; instance < 2 * kBuffers; ++instance) replay(instance);
  EXPECT_EQ(CountAllocations([&] {
              for (uint32_t instance = 2 * kBuffers; instance < 12 * kBuffers; ++instance) {
                replay(instance);
              }
            }),
            0);
}

// More than they take may be refused, less may end the process.
TEST_F(ReplayTest, WhatReplaysTakeIsKnownBefore) {
  constexpr int32_t kRuns = 64;
  for (const Plan& plan : {MakePlan("a.0", "a.1-2"), MakePlan("a.0", "b.0-1")}) {
    ReplaySpec spec = MakeReplays(0, plan);
    spec.buffers.resize(kRuns, spec.buffers.front());
    const int64_t known = PreparedPart::BytesFor(spec.part->part(), kRuns) -
                          PreparedPart::BytesFor(spec.part->part(), 0);
    const int64_t kept =
        CountKeptBytes([&] { ASSERT_OK(Runner(0).StartReplays(spec, replays_[0])); });
    EXPECT_LE(kept, known);
    EXPECT_GE(kept, known / 4);
    Runner(0).StopReplays(kReplayKey, absl::CancelledError("enough"), 0);
    RunUntil("the replays to stop", [&] { return std::exchange(replays_[0].stopped, false); });
  }
}

}  // namespace
}  // namespace crossmesh
