// Tasks that a worker takes no part in: what was sent to it ends, and no other worker is harmed.

#include "common/plan/plan.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/executor.h"
#include "worker/executor/executor_options.h"
#include "worker/executor/testing/executor_fixture.h"
#include "worker/transport/testing/inprocess_transport.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Tasks of two workers on one connection, which serves others as well.
class RefusalTest : public ExecutorTest, private TransportSink {
 protected:
  static constexpr absl::string_view kWhy = "it refuses";

  TaskSpec SpecOf(uint64_t operation, int worker) {
    TaskSpec spec = MakeSpec(worker, plan_, memory_);
    spec.key.operation = operation;
    spec.stall_limit = absl::Hours(1);  // no worker is cut off for being slow
    return spec;
  }
  static TaskKey KeyOf(uint64_t operation) { return {.operation = operation, .epoch = 1}; }
  // Runs the receiver's task of an operation, of which the sender's has been started before.
  void ExpectReceiverSucceeds(uint64_t operation, const Reports& sent) {
    Reports received;
    ASSERT_OK(receiver().Start(SpecOf(operation, 1), received));
    RunUntil("both reports", [&] { return sent.task && received.task; });
    EXPECT_THAT(sent.task->lost_peers, IsEmpty());
    ASSERT_EQ(received.devices.size(), 2U);
    for (const DeviceReport& device : received.devices) EXPECT_OK(device.status);
  }
  Executor& sender() { return *workers_[0].executor; }
  Executor& receiver() { return *workers_[1].executor; }

  const Plan plan_ = MakePlan("a.0", "b.0-1");
  const TileMemory memory_{plan_};
  // Takes nothing of what is sent to it.
  std::unique_ptr<InProcessTransport> silent_ = *InProcessTransport::Create(fabric_, *this);
  std::vector<std::unique_ptr<IncomingMessage>> kept_;  // destroyed first

 private:
  void OnMessage(std::unique_ptr<IncomingMessage> message) override {
    kept_.push_back(std::move(message));
  }
  void OnSent(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
  void OnReceived(Ticket /*ticket*/, const absl::Status& /*status*/) override {}
  void OnPeerLost(PeerId /*peer*/, const absl::Status& /*status*/) override {}
};

TEST_F(RefusalTest, WhatWasSentBeforeARefusalIsDropped) {
  Reports refused;
  ASSERT_OK(sender().Start(SpecOf(1, 0), refused));
  RunUntilIdle();  // the receiver keeps what it does not know
  ASSERT_FALSE(refused.task.has_value());
  receiver().Refuse(KeyOf(1));
  EXPECT_GT(receiver().counters().messages_dropped, 0);
  sender().PeerLost(KeyOf(1), "w1", absl::UnavailableError(kWhy));
  RunUntilIdle();
  EXPECT_TRUE(refused.task.has_value());
}

TEST_F(RefusalTest, APeerGivenUpByOneTaskStillServesAnother) {
  Reports refused;
  Reports other;
  ASSERT_OK(sender().Start(SpecOf(1, 0), refused));
  ASSERT_OK(sender().Start(SpecOf(2, 0), other));
  sender().PeerLost(KeyOf(1), "w1", absl::UnavailableError(kWhy));
  receiver().Refuse(KeyOf(1));
  RunUntil("the report of the refused task", [&] { return refused.task.has_value(); });
  EXPECT_THAT(refused.task->lost_peers, ElementsAre("w1"));
  ExpectReceiverSucceeds(2, other);
}

TEST_F(RefusalTest, OnlyAPeerThatHoldsUpTheEndIsCutOff) {
  loop_->AddSource(*silent_);
  TaskSpec spec = SpecOf(1, 0);
  spec.stall_limit = absl::Milliseconds(40);
  spec.peer_of_device[2] = static_cast<int32_t>(spec.peers.size());
  spec.peers.push_back({.worker = "w2", .address = silent_->address()});
  Reports refused;
  Reports other;
  ASSERT_OK(sender().Start(std::move(spec), refused));
  ASSERT_OK(sender().Start(SpecOf(2, 0), other));
  receiver().Refuse(KeyOf(1));
  for (const absl::string_view worker : {"w1", "w2"}) {
    sender().PeerLost(KeyOf(1), worker, absl::UnavailableError(kWhy));
  }
  RunUntil("the report of the refused task", [&] { return refused.task.has_value(); });
  EXPECT_FALSE(kept_.empty());
  kept_.clear();
  ExpectReceiverSucceeds(2, other);
}

TEST(ExecutorOptionsTest, StagingTakesTheLargestChunkOfAPlanInEachDirection) {
  EXPECT_EQ(ExecutorOptions().staging_bytes, 2 * Plan::kChunkBytesMax);
}

}  // namespace
}  // namespace crossmesh
