#include "worker/executor/task_context.h"

#include "worker/executor/testing/bare_task.h"

#include <chrono>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using SteadyClock = std::chrono::steady_clock;

class TaskContextTest : public testing::Test {
 protected:
  static void WaitForTheClock() {
    const SteadyClock::time_point begin = SteadyClock::now();
    while (SteadyClock::now() == begin) {
    }
  }

  const Plan plan_ =
      PlanOfRelays(TensorOf("[8]: x=1 on a.0 [-] -> x=1 on b.0 [-]"), {{.chain = "a.0 > b.0"}});
  BareTask task_{plan_, "a"};
  double& first_byte_ = task_.report.seconds.first_byte;
};

TEST_F(TaskContextTest, TheFirstByteIsThatOfTheFirstChunk) {
  task_.context.OnSourceHere();
  WaitForTheClock();
  task_.context.OnChunkBegun();
  const double first_byte = first_byte_;
  EXPECT_GT(first_byte, 0);
  WaitForTheClock();
  task_.context.OnChunkBegun();
  EXPECT_EQ(first_byte_, first_byte);
}

TEST_F(TaskContextTest, ItIsCountedFromTheLastSourceBeforeIt) {
  task_.context.OnSourceHere();
  const auto first = task_.context.source_here;
  WaitForTheClock();
  task_.context.OnSourceHere();
  const auto second = task_.context.source_here;
  EXPECT_NE(first, second);
  task_.context.OnChunkBegun();
  WaitForTheClock();
  task_.context.OnSourceHere();
  EXPECT_EQ(task_.context.source_here, second);
}

TEST_F(TaskContextTest, WithoutAnAwaitedSourceItIsNotCounted) {
  task_.context.OnChunkBegun();
  task_.context.OnSourceHere();
  WaitForTheClock();
  task_.context.OnChunkBegun();
  EXPECT_EQ(first_byte_, 0);
}

TEST_F(TaskContextTest, ATransferIsOpenUntilItIsRemoved) {
  const Ticket first = task_.context.AddTransfer({});
  const Ticket second = task_.context.AddTransfer({});
  EXPECT_NE(first, second);
  EXPECT_EQ(task_.context.transfers_open, 2);
  task_.context.RemoveTransfer(first);
  EXPECT_EQ(task_.context.transfers_open, 1);
  EXPECT_EQ(task_.context.AddTransfer({}), first) << "its place is free";
}

}  // namespace
}  // namespace crossmesh
