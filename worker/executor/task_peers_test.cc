// Which workers a task asks whether they are there, and which it blames, counted in rounds of its
// stall timer.

#include "worker/executor/task_peers.h"

#include "common/testing/status_matchers.h"
#include "worker/executor/testing/execution_fixture.h"

#include <string>
#include <utility>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TaskPeersTest : public ExecutionTest {
 protected:
  // A sender that has nothing to do but to wait for its source.
  void RunWaitingSender() {
    TaskSpec spec = MakeSpec(OneChannel(), "a");
    spec.awaited_sources = {0};
    Make(std::move(spec));
    task_->Begin();
    Take();
  }
  void GiveUp(const std::string& worker) {
    task_->GiveUpPeer(worker, absl::UnavailableError("it refuses"));
  }
  const TaskReport& Finish() {
    Steps();
    EXPECT_TRUE(task_->done());
    return task_->FinishReport();
  }
};

TEST_F(TaskPeersTest, ASilentOneIsAskedInTheSecondRoundAndBlamedInTheSixth) {
  Run(OneChannel(), "b");
  Rounds(1);
  EXPECT_THAT(SentKinds(), IsEmpty());
  Rounds(1);
  ASSERT_THAT(transport_.sent, SizeIs(1));
  EXPECT_EQ(transport_.sent[0].peer, IdOf(0));
  EXPECT_EQ(transport_.sent[0].header, HeaderOf({.kind = MessageKind::kProbe}));
  Rounds(3);
  EXPECT_THAT(transport_.sent, SizeIs(1)) << "it has not taken the first question";
  EXPECT_THAT(stalled_, IsEmpty());
  Rounds(1);
  ASSERT_THAT(stalled_, SizeIs(1));
  EXPECT_EQ(stalled_[0].first, IdOf(0));
  EXPECT_EQ(stalled_[0].second, absl::UnavailableError("stalled, it answers no message for 5s"));
  EXPECT_EQ(shared_.counters.stalls, 1);
}

TEST_F(TaskPeersTest, OneThatTakesAQuestionIsAskedAgain) {
  Run(OneChannel(), "b");
  Rounds(2);
  Take();
  Rounds(1);
  EXPECT_THAT(SentKinds(), ElementsAre(MessageKind::kProbe, MessageKind::kProbe));
}

TEST_F(TaskPeersTest, OneThatSaysThatItIsThereIsNotBlamed) {
  Run(OneChannel(), "b");
  for (int i = 0; i < 12; ++i) {
    Say({.kind = MessageKind::kAlive});
    Rounds(1);
  }
  EXPECT_THAT(stalled_, IsEmpty());
  EXPECT_THAT(SentKinds(), IsEmpty());
}

TEST_F(TaskPeersTest, OneOfWhichNothingIsExpectedIsNotAsked) {
  RunWaitingSender();
  Rounds(10);
  EXPECT_THAT(SentKinds(), ElementsAre(MessageKind::kOpening));
  EXPECT_THAT(stalled_, IsEmpty());
}

TEST_F(TaskPeersTest, OnlyTheOneWhoseChannelIsNotCompleteIsAsked) {
  Run(TwoSenders(), "b");
  SayAll(WholeChannel(0));
  Rounds(2);
  ASSERT_THAT(transport_.sent, SizeIs(1));
  EXPECT_EQ(transport_.sent[0].peer, IdOf(2));
  EXPECT_EQ(transport_.sent[0].header, HeaderOf({.channel = 1, .kind = MessageKind::kProbe}));
}

TEST_F(TaskPeersTest, AnAnswerIsOfTheInstanceThatAskedAndOneThatDoesNotTakeItIsBlamed) {
  RunWaitingSender();
  Say({.kind = MessageKind::kProbe, .instance = 7});
  ASSERT_THAT(transport_.sent, SizeIs(2));
  EXPECT_EQ(transport_.sent[1].header, HeaderOf({.kind = MessageKind::kAlive, .instance = 7}));
  EXPECT_FALSE(task_->quiet());
  Rounds(5);
  EXPECT_THAT(stalled_, IsEmpty());
  Rounds(1);
  EXPECT_THAT(stalled_, SizeIs(1));
  EXPECT_THAT(transport_.sent, SizeIs(2)) << "one that takes no message answers none";
}

TEST_F(TaskPeersTest, OneThatTakesNothingIsBlamedOnceInTheFifthRound) {
  Run(TwoReceivers(), "a");
  Rounds(4);
  EXPECT_THAT(stalled_, IsEmpty());
  Rounds(1);
  ASSERT_THAT(stalled_, SizeIs(1));
  EXPECT_EQ(stalled_[0].second,
            absl::UnavailableError("stalled, it took nothing of channel a.0 -> b.0 for 5s"));
  EXPECT_EQ(shared_.counters.stalls, 1) << "of two channels";
  Take(absl::UnavailableError("cut off"));
  EXPECT_THAT(Finish().lost_peers, ElementsAre("b"));
}

TEST_F(TaskPeersTest, OneThatDoesNotDeliverWhatItAnnouncedIsBlamedInTheSixthRound) {
  Run(OneChannel(), "b");
  Say(WholeChannel(0)[0]);
  Rounds(5);
  EXPECT_THAT(stalled_, IsEmpty());
  Rounds(1);
  ASSERT_THAT(stalled_, SizeIs(1));
  EXPECT_EQ(stalled_[0].second,
            absl::UnavailableError("stalled, it delivered nothing of what it announced on channel "
                                   "a.0 -> b.0 for 5s"));
}

TEST_F(TaskPeersTest, OneThatIsGivenUpIsToldWhyAndLostOnce) {
  RunWaitingSender();
  GiveUp("x");
  EXPECT_THAT(SentKinds(), ElementsAre(MessageKind::kOpening));
  GiveUp("b");
  GiveUp("b");
  EXPECT_THAT(SentKinds(), ElementsAre(MessageKind::kOpening, MessageKind::kFailed));
  Take();
  const TaskReport& report = Finish();
  EXPECT_THAT(report.lost_peers, ElementsAre("b"));
  EXPECT_EQ(report.first_loss, absl::UnavailableError("worker b is lost: it refuses"));
}

TEST_F(TaskPeersTest, OneThatIsGoneIsToldNothing) {
  RunWaitingSender();
  task_->OnPeerLost(IdOf(0), absl::UnavailableError("of no channel"));
  EXPECT_FALSE(task_->done());
  task_->OnPeerLost(IdOf(1), absl::UnavailableError("gone"));
  EXPECT_THAT(SentKinds(), ElementsAre(MessageKind::kOpening));
  EXPECT_EQ(Finish().first_loss, absl::UnavailableError("worker b is lost: gone"));
}

TEST_F(TaskPeersTest, WhatOthersSendIsTakenWhenOneIsGivenUp) {
  Run(TwoSenders(), "b");
  GiveUp("a");
  SayAll(WholeChannel(1));
  EXPECT_THAT(Finish().lost_peers, ElementsAre("a"));
  EXPECT_EQ(shared_.counters.relays_succeeded, 1);
  EXPECT_EQ(shared_.counters.relays_failed, 1);
  ASSERT_THAT(reports_.devices, SizeIs(1));
  EXPECT_EQ(reports_.devices[0].status, absl::UnavailableError("worker a is lost: it refuses"));
}

TEST_F(TaskPeersTest, OneThatASendFindsGoneIsLostOnceAndSentNothingMore) {
  Run(TwoReceivers(), "a");
  const size_t sent = transport_.sent.size();
  Take(absl::UnavailableError("reset"));
  EXPECT_THAT(transport_.sent, SizeIs(sent));
  task_->OnPeerLost(IdOf(1), absl::UnavailableError("reset"));
  EXPECT_THAT(Finish().lost_peers, ElementsAre("b"));
}

TEST_F(TaskPeersTest, SoIsOneThatAReceiveFindsGone) {
  Run(OneChannel(), "b");
  Say(WholeChannel(0)[0]);
  Deliver(absl::UnavailableError("reset"));
  EXPECT_THAT(Finish().lost_peers, ElementsAre("a"));
}

TEST_F(TaskPeersTest, OneThatIsGivenUpAndHoldsUpTheEndIsCutOffInTheFourthRound) {
  Run(TwoSenders(), "b");
  Say(WholeChannel(1)[0]);
  GiveUp("a");
  GiveUp("c");
  Steps();
  EXPECT_FALSE(task_->done());
  Rounds(3);
  EXPECT_THAT(stalled_, IsEmpty());
  Rounds(1);
  ASSERT_THAT(stalled_, SizeIs(1)) << "the other one holds nothing";
  EXPECT_EQ(stalled_[0].first, IdOf(2));
  EXPECT_EQ(stalled_[0].second, absl::UnavailableError("given up, with transfers under way"));
  Rounds(4);
  EXPECT_THAT(stalled_, SizeIs(1));
  EXPECT_EQ(shared_.counters.stalls, 0);
  Deliver(absl::CancelledError("cut off"));
  EXPECT_THAT(Finish().lost_peers, ElementsAre("a", "c"));
}

TEST_F(TaskPeersTest, ASendersRoundsBeforeItGivesUpDoNotCount) {
  Run(OneChannel(), "a");
  Rounds(4);
  GiveUp("b");
  Rounds(3);
  EXPECT_THAT(stalled_, IsEmpty());
  Rounds(1);
  EXPECT_THAT(stalled_, SizeIs(1));
}

TEST_F(TaskPeersTest, NoneIsCutOffWhileTheTaskGoesOn) {
  Run(TwoSenders(), "b");
  Say(WholeChannel(1)[0]);
  GiveUp("c");
  Steps();
  for (int i = 0; i < 8; ++i) {
    Say({.kind = MessageKind::kAlive});
    Rounds(1);
  }
  EXPECT_THAT(stalled_, IsEmpty());
  GiveUp("a");
  Steps();
  Rounds(3);
  EXPECT_THAT(stalled_, IsEmpty());
  Rounds(1);
  EXPECT_THAT(stalled_, SizeIs(1));
}

// Of instances whose senders wait for their receivers.
class ReadyPeersTest : public TaskPeersTest {
 protected:
  void RunReceiver(const Plan& plan) {
    TaskSpec spec = MakeSpec(plan, "b");
    spec.receivers_say_ready = true;
    Make(std::move(spec));
    task_->Begin();
  }
};

TEST_F(ReadyPeersTest, EverySenderIsToldThatItsReceiverIsReady) {
  RunReceiver(TwoSenders());
  ASSERT_THAT(transport_.sent, SizeIs(2));
  EXPECT_EQ(transport_.sent[0].peer, IdOf(0));
  EXPECT_EQ(transport_.sent[0].header, HeaderOf({.channel = 0, .kind = MessageKind::kReady}));
  EXPECT_EQ(transport_.sent[1].peer, IdOf(2));
  EXPECT_EQ(transport_.sent[1].header, HeaderOf({.channel = 1, .kind = MessageKind::kReady}));
}

TEST_F(ReadyPeersTest, OneThatIsGivenUpAndHoldsOnlyANoticeIsCutOff) {
  RunReceiver(TwoSenders());
  TakeOne(0);
  GiveUp("a");
  GiveUp("c");
  Steps();
  Rounds(4);
  ASSERT_THAT(stalled_, SizeIs(1));
  EXPECT_EQ(stalled_[0].first, IdOf(2));
}

TEST_F(ReadyPeersTest, OneThatIsLostStaysSoInTheNextInstance) {
  RunReceiver(OneChannel());
  Take();
  task_->OnPeerLost(IdOf(0), absl::UnavailableError("gone"));
  EXPECT_THAT(Finish().lost_peers, ElementsAre("a"));
  const size_t sent = transport_.sent.size();
  task_->Rewind(1);
  task_->Begin();
  EXPECT_THAT(transport_.sent, SizeIs(sent));
  EXPECT_TRUE(task_->quiet());
  const TaskReport& report = Finish();
  EXPECT_THAT(report.lost_peers, ElementsAre("a"));
  ASSERT_THAT(report.devices, SizeIs(1));
  EXPECT_EQ(report.devices[0].status, absl::UnavailableError("worker a is lost: gone"));
}

TEST_F(ReadyPeersTest, SilenceCountsFromTheBeginningOfAnInstance) {
  RunReceiver(OneChannel());
  Take();
  Rounds(5);
  Take();
  task_->Cancel(absl::CancelledError("enough"));
  Finish();
  task_->Rewind(1);
  task_->Begin();
  Take();
  Rounds(5);
  EXPECT_THAT(stalled_, IsEmpty());
  Rounds(1);
  EXPECT_THAT(stalled_, SizeIs(1));
}

}  // namespace
}  // namespace crossmesh
