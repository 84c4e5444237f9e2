#include "common/testing/allocations/count_allocations.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/replay_fixture.h"

#include <cstdint>

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

}  // namespace
}  // namespace crossmesh
