#include "worker/executor/parking.h"

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
  Message(uint64_t operation, uint64_t sequence)
      : header_{.operation = operation, .sequence = sequence} {}
  const MessageHeader& header() const override { return header_; }
  void Receive(Pieces /*into*/, Ticket /*ticket*/) override {}

 private:
  const MessageHeader header_;
};

std::vector<uint64_t> TakeAll(Parking& parking, uint64_t operation) {
  std::vector<uint64_t> sequences;
  parking.Take({.operation = operation}, [&](std::unique_ptr<IncomingMessage> message) {
    sequences.push_back(message->header().sequence);
  });
  return sequences;
}

TEST(Parking, GivesATaskItsMessagesInOrder) {
  Parking parking(10);
  for (const auto& [operation, sequence] : {std::pair(1, 1), {2, 7}, {1, 2}}) {
    EXPECT_TRUE(parking.Park(std::make_unique<Message>(operation, sequence)));
  }
  EXPECT_THAT(TakeAll(parking, 1), ElementsAre(1, 2));
  EXPECT_THAT(TakeAll(parking, 2), ElementsAre(7));
  EXPECT_TRUE(parking.empty());
}

TEST(Parking, IsBounded) {
  Parking parking(1);
  EXPECT_TRUE(parking.Park(std::make_unique<Message>(1, 1)));
  EXPECT_FALSE(parking.Park(std::make_unique<Message>(1, 2)));
}

TEST(Parking, KeepsNothingOfThePast) {
  Parking parking(10);
  parking.OnTaskEnded({.operation = 3});
  EXPECT_FALSE(parking.Park(std::make_unique<Message>(3, 1)));
  for (uint64_t operation = 10; operation < 2000; ++operation) {
    parking.OnTaskEnded({.operation = operation});
  }
  EXPECT_FALSE(parking.IsPast({.operation = 3}));
}

TEST(Parking, KeepsNothingOfAnOlderEpoch) {
  Parking parking(10);
  EXPECT_TRUE(parking.Park(std::make_unique<Message>(1, 1)));
  EXPECT_EQ(parking.OnEpochRaised(1), 1);
  EXPECT_TRUE(parking.empty());
  EXPECT_FALSE(parking.Park(std::make_unique<Message>(1, 2)));
}

TEST(Parking, DropsWhatIsParkedForATaskOfThePast) {
  Parking parking(10);
  for (const auto& [operation, sequence] : {std::pair(1, 1), {2, 7}, {1, 2}}) {
    EXPECT_TRUE(parking.Park(std::make_unique<Message>(operation, sequence)));
  }
  EXPECT_EQ(parking.OnTaskEnded({.operation = 1}), 2);
  EXPECT_THAT(TakeAll(parking, 1), IsEmpty());
  EXPECT_THAT(TakeAll(parking, 2), ElementsAre(7));
}

TEST(Parking, DropsWhatWasThereAWholeRound) {
  Parking parking(10);
  EXPECT_TRUE(parking.Park(std::make_unique<Message>(1, 1)));
  EXPECT_EQ(parking.OnRound(), 0);
  EXPECT_TRUE(parking.Park(std::make_unique<Message>(1, 2)));
  EXPECT_EQ(parking.OnRound(), 1);
  EXPECT_THAT(TakeAll(parking, 1), ElementsAre(2));
}

}  // namespace
}  // namespace crossmesh
