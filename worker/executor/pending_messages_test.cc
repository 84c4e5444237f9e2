#include "worker/executor/pending_messages.h"

#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Message final : public IncomingMessage {
 public:
  Message(uint64_t operation, uint64_t sequence, uint32_t instance = 0, uint64_t epoch = 0)
      : header_{
            .operation = operation, .epoch = epoch, .instance = instance, .sequence = sequence} {}
  const MessageHeader& header() const override { return header_; }
  void Receive(Pieces /*into*/, Ticket /*ticket*/) override {}

 private:
  const MessageHeader header_;
};

std::vector<uint64_t> TakeAll(PendingMessages& pending, uint64_t operation) {
  std::vector<uint64_t> sequences;
  pending.Take({.operation = operation}, [&](std::unique_ptr<IncomingMessage> message) {
    sequences.push_back(message->header().sequence);
  });
  return sequences;
}

TEST(PendingMessages, GivesATaskItsMessagesInOrder) {
  PendingMessages pending(10);
  for (const auto& [operation, sequence] : {std::pair(1, 1), {2, 7}, {1, 2}}) {
    EXPECT_TRUE(pending.Add(std::make_unique<Message>(operation, sequence)));
  }
  EXPECT_THAT(TakeAll(pending, 1), ElementsAre(1, 2));
  EXPECT_THAT(TakeAll(pending, 2), ElementsAre(7));
  EXPECT_TRUE(pending.empty());
}

TEST(PendingMessages, IsBounded) {
  PendingMessages pending(1);
  EXPECT_TRUE(pending.Add(std::make_unique<Message>(1, 1)));
  EXPECT_FALSE(pending.Add(std::make_unique<Message>(1, 2)));
}

TEST(PendingMessages, KeepsNothingOfThePast) {
  PendingMessages pending(10);
  pending.OnTaskEnded({.operation = 3});
  EXPECT_FALSE(pending.Add(std::make_unique<Message>(3, 1)));
  for (uint64_t operation = 10; operation < 2000; ++operation) {
    pending.OnTaskEnded({.operation = operation});
  }
  EXPECT_FALSE(pending.IsPast({.operation = 3}));
}

TEST(PendingMessages, KeepsNothingOfAnOlderEpoch) {
  PendingMessages pending(10);
  EXPECT_TRUE(pending.Add(std::make_unique<Message>(1, 1)));
  EXPECT_EQ(pending.OnEpochRaised(1), 1);
  EXPECT_TRUE(pending.empty());
  EXPECT_FALSE(pending.Add(std::make_unique<Message>(1, 2)));
}

TEST(PendingMessages, KeepsWhatIsOfTheEpochItself) {
  PendingMessages pending(10);
  for (const uint64_t epoch : {6, 7, 8}) {
    EXPECT_TRUE(pending.Add(std::make_unique<Message>(1, epoch, 0, epoch)));
  }
  EXPECT_EQ(pending.OnEpochRaised(7), 1);
  EXPECT_TRUE(pending.IsPast({.operation = 1, .epoch = 6}));
  EXPECT_FALSE(pending.IsPast({.operation = 1, .epoch = 7}));
  EXPECT_TRUE(pending.Add(std::make_unique<Message>(1, 9, 0, 7)));
}

TEST(PendingMessages, RemembersTheLatestThousandAnd24TasksThatEnded) {
  PendingMessages pending(10);
  // The second time is no news.
  for (int i = 0; i < 2; ++i) pending.OnTaskEnded({.operation = 1});
  for (uint64_t operation = 2; operation <= 1024; ++operation) {
    pending.OnTaskEnded({.operation = operation});
  }
  EXPECT_TRUE(pending.IsPast({.operation = 1}));
  for (uint64_t ended = 1025; ended <= 1030; ++ended) {
    pending.OnTaskEnded({.operation = ended});
    EXPECT_FALSE(pending.IsPast({.operation = ended - 1024}));
    EXPECT_TRUE(pending.IsPast({.operation = ended - 1023}));
  }
}

TEST(PendingMessages, RemembersTheLatestThousandAnd24ReplaysThatStopped) {
  PendingMessages pending(10);
  // The second time it is another number of the same replays.
  for (const uint32_t next_instance : {3U, 5U}) {
    pending.OnReplaysStopped({.operation = 1}, next_instance);
  }
  EXPECT_TRUE(pending.IsPast({.operation = 1, .instance = 4}));
  for (uint64_t operation = 2; operation <= 1024; ++operation) {
    pending.OnReplaysStopped({.operation = operation}, 5);
  }
  EXPECT_TRUE(pending.IsPast({.operation = 1, .instance = 4}));
  for (uint64_t stopped = 1025; stopped <= 1030; ++stopped) {
    pending.OnReplaysStopped({.operation = stopped}, 5);
    EXPECT_FALSE(pending.IsPast({.operation = stopped - 1024, .instance = 4}));
    EXPECT_TRUE(pending.IsPast({.operation = stopped - 1023, .instance = 4}));
  }
}

TEST(PendingMessages, DropsWhatIsHeldForATaskOfThePast) {
  PendingMessages pending(10);
  for (const auto& [operation, sequence] : {std::pair(1, 1), {2, 7}, {1, 2}}) {
    EXPECT_TRUE(pending.Add(std::make_unique<Message>(operation, sequence)));
  }
  EXPECT_EQ(pending.OnTaskEnded({.operation = 1}), 2);
  EXPECT_THAT(TakeAll(pending, 1), IsEmpty());
  EXPECT_THAT(TakeAll(pending, 2), ElementsAre(7));
}

TEST(PendingMessages, ReplaysThatStoppedLeaveWhatIsOfTheNextInstance) {
  PendingMessages pending(10);
  for (const uint32_t instance : {4U, 5U, 6U}) {
    EXPECT_TRUE(pending.Add(std::make_unique<Message>(1, 10 + instance, instance)));
  }
  EXPECT_TRUE(pending.Add(std::make_unique<Message>(2, 14, 4)));
  EXPECT_EQ(pending.OnReplaysStopped({.operation = 1}, /*next_instance=*/5), 1);
  std::vector<uint64_t> left;
  for (const uint32_t instance : {4U, 5U, 6U}) {
    pending.Take({.operation = 1, .instance = instance},
                 [&](const auto& message) { left.push_back(message->header().sequence); });
  }
  EXPECT_THAT(left, ElementsAre(15, 16));
  EXPECT_FALSE(pending.empty()) << "other replays keep theirs";
  EXPECT_FALSE(pending.Add(std::make_unique<Message>(1, 14, 4)));
  EXPECT_TRUE(pending.Add(std::make_unique<Message>(1, 15, 5)));
}

TEST(PendingMessages, DropsWhatWasThereAWholeRound) {
  PendingMessages pending(10);
  EXPECT_TRUE(pending.Add(std::make_unique<Message>(1, 1)));
  EXPECT_EQ(pending.OnRound(), 0);
  EXPECT_TRUE(pending.Add(std::make_unique<Message>(1, 2)));
  EXPECT_EQ(pending.OnRound(), 1);
  EXPECT_THAT(TakeAll(pending, 1), ElementsAre(2));
  EXPECT_EQ(pending.OnRound(), 0);
  for (const uint64_t sequence : {3, 4}) {
    EXPECT_TRUE(pending.Add(std::make_unique<Message>(1, sequence)));
  }
  EXPECT_EQ(pending.OnRound(), 0);
  EXPECT_EQ(pending.OnRound(), 2);
  EXPECT_TRUE(pending.empty());
  EXPECT_EQ(pending.OnRound(), 0);
}

}  // namespace
}  // namespace crossmesh
