#include "worker/executor/executor.h"

#include "common/plan/proof.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/executor_fixture.h"
#include "worker/executor/testing/tile_memory.h"

#include <utility>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ExecutorTest, MovesATensorBetweenWorkers) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  ASSERT_OK(Prove(plan));
  const TileMemory memory(plan);
  StartBoth(plan, memory);
  RunToEnd();
  const TaskReport& sent = *workers_[0].reports.task;
  const TaskReport& received = *workers_[1].reports.task;
  EXPECT_OK(sent.status);
  EXPECT_THAT(sent.devices, IsEmpty());
  EXPECT_EQ(sent.sent_bytes, 4 << 20);
  EXPECT_EQ(workers_[0].executor->counters().links.at(0).sent, 4 << 20);
  EXPECT_EQ(received.received_bytes, 4 << 20);
  EXPECT_EQ(workers_[1].executor->counters().links.at(0).received, 4 << 20);
  ASSERT_EQ(received.devices.size(), 2U);
  for (const DeviceReport& device : received.devices) {
    EXPECT_OK(device.status);
    EXPECT_EQ(device.bytes, 2 << 20);
    EXPECT_NE(device.digest, Digest());
    EXPECT_OK(memory.CheckDestination(device.device));
  }
  EXPECT_OK(memory.CheckUntouched());
  const ExecutorCounters& counters = workers_[1].executor->counters();
  EXPECT_EQ(counters.relays_succeeded, 2);
  ASSERT_EQ(counters.links.size(), 1U);
  EXPECT_EQ(counters.links[0].link, "local");
  EXPECT_EQ(counters.links[0].received, 4 << 20);
  EXPECT_EQ(workers_[1].executor->MovedBytes(kKey), std::nullopt);
}

// The parameter: how many NICs each worker has, striped; 0 is one that is not.
class NicsTest : public ExecutorTest, public testing::WithParamInterface<size_t> {
 protected:
  NicsTest() : ExecutorTest({}, GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(All, NicsTest, testing::Values(0, 1, 2),
                         testing::PrintToStringParamName());

TEST_P(NicsTest, SendsTwoChunksForEachLaneBeforeOneIsTaken) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  const TileMemory memory(plan);
  ASSERT_OK(workers_[0].executor->Start(MakeSpec(0, plan, memory), workers_[0].reports));
  RunUntilIdle();
  // What waits there: these chunks, and the openings of two channels.
  workers_[1].executor->Refuse(kKey);
  const int64_t lanes = GetParam() == 2 ? 4 : 1;
  EXPECT_EQ(workers_[1].executor->counters().messages_dropped, 2 * lanes + 2);
}

TEST_F(ExecutorTest, ReportsWhatEveryLinkCarriedAndHowLongItWasBusy) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  const TileMemory memory(plan);
  StartBoth(plan, memory);
  RunToEnd();
  const TaskReport& sent = *workers_[0].reports.task;
  ASSERT_EQ(sent.links.size(), 1u);
  EXPECT_EQ(sent.links[0].peer, "w1");
  EXPECT_EQ(sent.links[0].sent_bytes, 4 << 20);
  EXPECT_GT(sent.links[0].busy_seconds, 0);
  EXPECT_LE(sent.links[0].busy_seconds, sent.seconds.bind + sent.seconds.move);
  EXPECT_THAT(workers_[1].reports.task->links, IsEmpty());
}

TEST_F(ExecutorTest, APlanThatTakesItsTimeIsNoFaster) {
  constexpr double kLeastSeconds = 0.2;
  const Plan plan = MakeSlowPlan(kLeastSeconds);
  const TileMemory memory(plan);
  StartBoth(plan, memory);
  RunToEnd();
  const TaskReport& sent = *workers_[0].reports.task;
  // 64 chunks: the last one may go when all others have had their time.
  EXPECT_GE(sent.seconds.move, kLeastSeconds * 62 / 64);
  // In between nothing is under way.
  EXPECT_LT(sent.links[0].busy_seconds, sent.seconds.move);
}

TEST_F(ExecutorTest, AnAwaitedSourceIsReadWhenItIsHereAndNoPeerIsTakenForStalled) {
  const Plan plan = MakePlan("a.0", "a.1,b.0");
  const TileMemory memory(plan);
  constexpr absl::Duration kStallLimit = absl::Milliseconds(200);
  for (int i = 0; i < 2; ++i) {
    TaskSpec spec = MakeSpec(i, plan, memory);
    spec.stall_limit = kStallLimit;
    if (i == 0) spec.awaited_sources = {0};
    ASSERT_OK(workers_[i].executor->Start(std::move(spec), workers_[i].reports));
  }
  bool is_late = false;
  loop_->RunAfter(2 * kStallLimit, [&] { is_late = true; });
  RunUntil("a source that is late", [&] { return is_late; });
  for (const Worker& worker : workers_) EXPECT_EQ(worker.executor->MovedBytes(kKey), 0);
  workers_[0].executor->SourceHere(kKey, 0);
  RunToEnd();
  for (const DeviceRank device : {1, 2}) EXPECT_OK(memory.CheckDestination(device));
  for (const Worker& worker : workers_) EXPECT_OK(worker.reports.task->status);
}

TEST_F(ExecutorTest, ADeviceWithScalesDoesNotWaitForTheSourceOfAnother) {
  const Plan plan = MakeQuantizedPlan("b.0");
  const TileMemory memory(plan);
  for (int i = 0; i < 2; ++i) {
    TaskSpec spec = MakeSpec(i, plan, memory);
    if (i == 0) spec.awaited_sources = {0};
    ASSERT_OK(workers_[i].executor->Start(std::move(spec), workers_[i].reports));
  }
  // A block of elements, and its scale.
  constexpr int64_t kBytesOfOne = 128 * 128 + 4;
  RunUntil("the bytes of one device",
           [&] { return workers_[1].executor->MovedBytes(kKey) == kBytesOfOne; });
  workers_[0].executor->SourceHere(kKey, 0);
  RunToEnd();
  EXPECT_EQ(workers_[1].reports.task->received_bytes, 2 * kBytesOfOne);
  EXPECT_OK(memory.CheckDestination(2));
}

TEST_F(ExecutorTest, TheLoopRestsWhileCopiesInsideAWorkerWaitForTheirSource) {
  const Plan plan = MakePlan("a.0", "a.0-1");
  const TileMemory memory(plan);
  TaskSpec spec = MakeSpec(0, plan, memory);
  spec.awaited_sources = {0};
  ASSERT_OK(workers_[0].executor->Start(std::move(spec), workers_[0].reports));
  RunUntilIdle();
  workers_[0].executor->SourceHere(kKey, 0);
  RunUntil("the report", [&] { return workers_[0].reports.task.has_value(); });
  for (const DeviceRank device : {0, 1}) EXPECT_OK(memory.CheckDestination(device));
}

TEST_F(ExecutorTest, ATaskWhoseSourceNeverComesEndsWhenItIsCancelled) {
  const Plan plan = MakeQuantizedPlan("a.0");
  const TileMemory memory(plan);
  TaskSpec spec = MakeSpec(0, plan, memory);
  spec.awaited_sources = {0, 1};
  ASSERT_OK(workers_[0].executor->Start(std::move(spec), workers_[0].reports));
  workers_[0].executor->Cancel(kKey, absl::CancelledError("enough"));
  RunUntil("the report of the cancelled task",
           [&] { return workers_[0].reports.task.has_value(); });
  EXPECT_THAT(workers_[0].reports.task->status, StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(ExecutorTest, RefusesATaskThatRunsOrHasRun) {
  const Plan plan = MakePlan("a.0", "a.1-2");
  const TileMemory memory(plan);
  Executor& executor = *workers_[0].executor;
  ASSERT_OK(executor.Start(MakeSpec(0, plan, memory), workers_[0].reports));
  EXPECT_THAT(executor.Start(MakeSpec(0, plan, memory), workers_[0].reports),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("operation 1")));
  RunUntil("the report", [&] { return workers_[0].reports.task.has_value(); });
  EXPECT_THAT(executor.Start(MakeSpec(0, plan, memory), workers_[0].reports),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(ExecutorTest, RefusesDevicesWithoutMemory) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  const TileMemory memory(plan);
  TaskSpec spec = MakeSpec(1, plan, memory);
  spec.destinations.erase(2);
  EXPECT_THAT(workers_[1].executor->Start(std::move(spec), workers_[1].reports),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("destination of device b.1")));
  spec = MakeSpec(0, plan, memory);
  spec.sources[0].tensor[0] = nullptr;
  EXPECT_THAT(workers_[0].executor->Start(std::move(spec), workers_[0].reports),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor 0")));
}

TEST_F(ExecutorTest, RefusesPeersThatItCannotReach) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  const TileMemory memory(plan);
  TaskSpec spec = MakeSpec(0, plan, memory);
  spec.peer_of_device.erase(2);
  EXPECT_THAT(workers_[0].executor->Start(std::move(spec), workers_[0].reports),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the worker of b.1")));
  spec = MakeSpec(0, plan, memory);
  spec.peers[1].address = "nowhere";
  EXPECT_THAT(workers_[0].executor->Start(std::move(spec), workers_[0].reports),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

class LittleStagingTest : public ExecutorTest {
 protected:
  LittleStagingTest() : ExecutorTest({.staging_bytes = 1 << 16}) {}
};

TEST_F(LittleStagingTest, AChunkAsLargeAsItsHalfStillGoes) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  const TileMemory memory(plan);
  StartBoth(plan, memory);
  RunToEnd();
  for (const DeviceReport& device : workers_[1].reports.devices) EXPECT_OK(device.status);
}

}  // namespace
}  // namespace crossmesh
