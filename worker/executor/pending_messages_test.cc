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
  Message(uint64_t operation, uint64_t sequence, uint32_t instance = 0)
      : header_{.operation = operation, .instance = instance, .sequence = sequence} {}
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
  EXPECT_EQ(pending.OnReplaysStopped({.operation = 1}, /*next_instance=*/5), 1);
  std::vector<uint64_t> left;
  for (const uint32_t instance : {4U, 5U, 6U}) {
    pending.Take({.operation = 1, .instance = instance},
                 [&](const auto& message) { left.push_back(message->header().sequence); });
  }
  EXPECT_THAT(left, ElementsAre(15, 16));
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
}

}  // namespace
}  // namespace crossmesh
