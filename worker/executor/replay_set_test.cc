// What a set of replays keeps, hands back and drops of the messages of its instances.

#include "worker/executor/replay_set.h"

#include "common/plan/testing/chain_plan.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/execution_fixture.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Instances final : public ReplayObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& /*report*/) override {}
  void OnTaskDone(const TaskReport& report) override { done.push_back(report.key.instance); }
  void OnReplaysStopped(const ReplayKey& /*key*/) override {}

  std::vector<uint32_t> done;
};

// Of a channel from a.0 to b.0, in two buffers, from instance 10 on. The task of the fixture is one
// of the same part that never begins: it makes headers.
class ReplaySetTest : public ExecutionTest {
 protected:
  static constexpr uint32_t kFirst = 10;
  static constexpr size_t kBuffers = 2;

  void MakeSet(const std::string& host) { MakeSet(OneChannel(), host); }
  void MakeSet(const Plan& plan, const std::string& host) {
    TaskSpec task = MakeSpec(plan, host);
    ReplaySpec spec{.key = ReplayKeyOf(task.key),
                    .token_high = task.token_high,
                    .token_low = task.token_low,
                    .part = task.part,
                    .buffers = std::vector<ReplaySpec::Buffer>(
                        kBuffers, {.sources = task.sources, .destinations = task.destinations}),
                    .peers = task.peers,
                    .peer_of_device = task.peer_of_device,
                    .first_instance = kFirst};
    set_ = std::make_unique<ReplaySet>(spec, PeerIds(task), shared_, instances_);
    Make(std::move(task));
  }
  // Is it handed back, since it is for an instance that is to come?
  bool HandsBack(MessageKind kind, uint32_t instance) {
    return HandsBack(HeaderOf({.kind = kind, .instance = instance}));
  }
  bool HandsBack(const MessageHeader& header) {
    return set_->OnMessage(MessageOf(header)) != nullptr;
  }
  void SourceHere(uint32_t instance) { set_->Find(instance)->OnSourceHere(0); }
  int64_t dropped() const { return shared_.counters.messages_dropped; }

  Instances instances_;
  std::unique_ptr<ReplaySet> set_;
};

TEST_F(ReplaySetTest, WhatComesForAnInstanceToComeIsHandedBackAndForOneThatIsOverDropped) {
  MakeSet("b");
  EXPECT_FALSE(HandsBack(MessageKind::kOpening, kFirst - 1));
  EXPECT_EQ(dropped(), 1);
  EXPECT_TRUE(HandsBack(MessageKind::kOpening, kFirst));
  EXPECT_EQ(dropped(), 1);
  set_->Begin(0, kFirst);
  set_->Find(kFirst)->Cancel(absl::CancelledError("enough"));
  Take();
  set_->Step();
  ASSERT_THAT(instances_.done, ElementsAre(kFirst));
  EXPECT_FALSE(HandsBack(MessageKind::kOpening, kFirst));
  EXPECT_EQ(dropped(), 2);
  EXPECT_TRUE(HandsBack(MessageKind::kOpening, kFirst + 1));
  EXPECT_FALSE(HandsBack(MessageKind::kAlive, kFirst + 1)) << "the question was of no instance";
  EXPECT_EQ(dropped(), 3);
}

TEST_F(ReplaySetTest, AQuestionIsAnsweredForEveryInstance) {
  MakeSet("b");
  for (const uint32_t instance : {kFirst - 1, kFirst, kFirst + 7}) {
    EXPECT_FALSE(HandsBack(MessageKind::kProbe, instance));
    ASSERT_FALSE(transport_.sent.empty());
    EXPECT_EQ(transport_.sent.back().header,
              HeaderOf({.kind = MessageKind::kAlive, .instance = instance}));
  }
  EXPECT_THAT(transport_.sent, SizeIs(3));
  EXPECT_EQ(dropped(), 0);
}

TEST_F(ReplaySetTest, AReceiverMayBeAsManyInstancesAheadAsThereAreBuffers) {
  MakeSet("a");
  EXPECT_FALSE(HandsBack(MessageKind::kReady, kFirst));
  EXPECT_FALSE(HandsBack(MessageKind::kReady, kFirst + 1));
  EXPECT_TRUE(HandsBack(MessageKind::kReady, kFirst + 2));
  EXPECT_EQ(dropped(), 0);
  // That of the first one is used now, and another may take its place.
  set_->Begin(0, kFirst);
  EXPECT_THAT(SentKinds(), ElementsAre(MessageKind::kOpening));
  EXPECT_FALSE(HandsBack(MessageKind::kReady, kFirst + 2));
  EXPECT_TRUE(HandsBack(MessageKind::kReady, kFirst + 3));
  set_->Begin(1, kFirst + 1);
  EXPECT_THAT(SentKinds(), SizeIs(2));
}

TEST_F(ReplaySetTest, OnlyReceiversOfTheInstanceLetItBegin) {
  MakeSet("a");
  EXPECT_FALSE(HandsBack(MessageKind::kReady, kFirst + 1));
  set_->Begin(0, kFirst);
  EXPECT_THAT(SentKinds(), IsEmpty());
  set_->Begin(1, kFirst + 1);
  EXPECT_THAT(SentKinds(), ElementsAre(MessageKind::kOpening));
  EXPECT_FALSE(HandsBack(MessageKind::kReady, kFirst));
  EXPECT_THAT(SentKinds(), SizeIs(2));
}

TEST_F(ReplaySetTest, ReceiversOfOthersAreNotKept) {
  MakeSet("a");
  MessageHeader header = HeaderOf({.kind = MessageKind::kReady, .instance = kFirst});
  header.token_low = kTokenLow + 1;
  EXPECT_TRUE(HandsBack(header));
  header.kind = static_cast<uint32_t>(MessageKind::kProbe);
  EXPECT_TRUE(HandsBack(header));
  EXPECT_THAT(SentKinds(), IsEmpty());
}

// As a peer might say whose plan is another.
TEST_F(ReplaySetTest, AReceiverIsNotHeldUpByOneThatIsReadyToReceiveFromIt) {
  MakeSet("b");
  EXPECT_FALSE(HandsBack(MessageKind::kReady, kFirst));
  set_->Begin(0, kFirst);
  EXPECT_THAT(SentKinds(), ElementsAre(MessageKind::kReady));
}

TEST_F(ReplaySetTest, EveryInstanceAwaitsItsSource) {
  MakeSet("a");
  for (const uint32_t instance : {kFirst, kFirst + 1}) {
    EXPECT_FALSE(HandsBack(MessageKind::kReady, instance));
    set_->Begin(static_cast<int32_t>(instance - kFirst), instance);
  }
  EXPECT_EQ(SentOf(MessageKind::kChunk), 0);
  SourceHere(kFirst + 1);
  EXPECT_EQ(SentOf(MessageKind::kChunk), 1);
  EXPECT_EQ(transport_.sent.back().header.instance, kFirst + 1);
}

TEST_F(ReplaySetTest, StoppedItIsWhenWhatRunsHasEndedAndAllIsQuiet) {
  MakeSet("b");
  EXPECT_FALSE(HandsBack(MessageKind::kProbe, kFirst));
  set_->Begin(1, kFirst);
  EXPECT_FALSE(set_->stopped());
  set_->Stop(absl::CancelledError("enough"));
  set_->Begin(0, kFirst + 1);
  EXPECT_EQ(set_->Find(kFirst + 1), nullptr) << "nothing begins any more";
  // What the instance has sent is taken, but not yet the answer of the set.
  ASSERT_THAT(SentKinds(), ElementsAre(MessageKind::kAlive, MessageKind::kReady));
  TakeOne(1);
  set_->Step();
  EXPECT_THAT(instances_.done, ElementsAre(kFirst));
  EXPECT_FALSE(set_->stopped());
  TakeOne(0);
  EXPECT_TRUE(set_->stopped());
}

TEST_F(ReplaySetTest, StoppedItIsNotBeforeWhatRanIsReported) {
  MakeSet("b");
  set_->Begin(1, kFirst);
  set_->Stop(absl::CancelledError("enough"));
  Take();
  EXPECT_FALSE(set_->stopped());
  set_->Step();
  EXPECT_TRUE(set_->stopped());
}

TEST_F(ReplaySetTest, ThereIsMoreToDoWhileAnyInstanceHas) {
  // More than a step copies.
  MakeSet(ChainPlan(TensorOf("[1048576]: x=1 on b.0 [-] -> x=1 on b.0 [-]"), {},
                    {.copies = {{.slice_class = 0, .device = 0}}}),
          "b");
  set_->Begin(0, kFirst);
  set_->Begin(1, kFirst + 1);
  EXPECT_FALSE(set_->Step());
  SourceHere(kFirst);
  EXPECT_TRUE(set_->Step());
  while (set_->Step()) {
  }
  EXPECT_THAT(instances_.done, ElementsAre(kFirst));
  SourceHere(kFirst + 1);
  EXPECT_TRUE(set_->Step());
}

}  // namespace
}  // namespace crossmesh
