// Tasks that a worker takes no part in: what was sent to it ends, and nobody else is harmed.

#include "common/testing/status_matchers.h"
#include "worker/executor/executor.h"
#include "worker/executor/executor_fixture.h"

#include <cstdint>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Tasks of two workers on one connection, which serves others as well.
class RefusalTest : public ExecutorTest {
 protected:
  static constexpr absl::string_view kWhy = "it refuses";

  TaskSpec SpecOf(uint64_t operation, int worker) {
    TaskSpec spec = MakeSpec(worker, plan_, memory_);
    spec.key.operation = operation;
    spec.stall_limit = absl::Hours(1);  // nobody is cut off for being slow
    return spec;
  }
  static TaskKey KeyOf(uint64_t operation) { return {.operation = operation, .epoch = 1}; }
  void RunUntilIdle() {
    while (loop_->RunOnce(absl::ZeroDuration()) > 0) {
    }
  }
  Executor& sender() { return *workers_[0].executor; }
  Executor& receiver() { return *workers_[1].executor; }

  const Plan plan_ = MakePlan("a.0", "b.0-1");
  const TileMemory memory_{plan_};
};

TEST_F(RefusalTest, WhatWasSentBeforeARefusalIsDropped) {
  Reports refused;
  ASSERT_OK(sender().Start(SpecOf(1, 0), refused));
  RunUntilIdle();  // the receiver has parked what it does not know
  ASSERT_FALSE(refused.task.has_value());
  receiver().Refuse(KeyOf(1));
  EXPECT_GT(receiver().counters().messages_dropped, 0);
  sender().PeerLost("w1", absl::UnavailableError(kWhy));
  RunUntilIdle();
  EXPECT_TRUE(refused.task.has_value());
}

}  // namespace
}  // namespace crossmesh
