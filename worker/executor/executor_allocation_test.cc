#include "common/testing/allocations/count_allocations.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/executor_fixture.h"
#include "worker/executor/testing/tile_memory.h"

#include <cstddef>
#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST_F(ExecutorTest, AllocatesNothingBetweenTheFirstAndTheLastByteInsideAWorker) {
  const Plan plan = MakePlan("a.0", "a.1-2");
  const TileMemory memory(plan);
  ASSERT_OK(workers_[0].executor->Start(MakeSpec(0, plan, memory), workers_[0].reports));
  RunUntil("the first bytes",
           [&] { return workers_[0].executor->MovedBytes(kKey).value_or(0) > 0; });
  const int64_t allocations = CountAllocations([&] {
    RunUntil("the last bytes",
             [&] { return workers_[0].executor->MovedBytes(kKey).value_or(4 << 20) >= 4 << 20; });
  });
  EXPECT_EQ(allocations, 0);
  RunUntil("the report", [&] { return workers_[0].reports.task.has_value(); });
  EXPECT_EQ(workers_[0].reports.task->copied_bytes, 4 << 20);
}

// The parameter: how many NICs each worker has, striped; 0 is one that is not.
class NicsTest : public ExecutorTest, public testing::WithParamInterface<size_t> {
 protected:
  NicsTest() : ExecutorTest({}, GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(All, NicsTest, testing::Values(0, 1, 2),
                         testing::PrintToStringParamName());

TEST_P(NicsTest, AllocatesNothingBetweenWorkers) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  const TileMemory memory(plan);
  StartBoth(plan, memory);
  // Half way the transport's own memory is warm.
  RunUntil("half the bytes",
           [&] { return workers_[1].executor->MovedBytes(kKey).value_or(0) >= 2 << 20; });
  const int64_t allocations = CountAllocations([&] {
    RunUntil("the last bytes",
             [&] { return workers_[1].executor->MovedBytes(kKey).value_or(4 << 20) >= 4 << 20; });
  });
  EXPECT_EQ(allocations, 0);
  RunToEnd();
}

}  // namespace
}  // namespace crossmesh
