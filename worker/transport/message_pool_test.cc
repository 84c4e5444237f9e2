#include "worker/transport/message_pool.h"

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class NumberedMessage final : public PooledMessage {
 public:
  NumberedMessage(uint64_t number, int& living) : living_(living) {
    header_.sequence = number;
    ++living_;
  }
  ~NumberedMessage() override { --living_; }

  const MessageHeader& header() const override { return header_; }
  void Receive(Pieces /*into*/, Ticket /*ticket*/) override {}

 private:
  int& living_;
  MessageHeader header_;
};

class MessagePoolTest : public testing::Test {
 protected:
  std::unique_ptr<IncomingMessage> Make(uint64_t number) {
    return std::unique_ptr<IncomingMessage>(new (pool_) NumberedMessage(number, living_));
  }

  int living_ = 0;
  MessagePool pool_;
};

TEST_F(MessagePoolTest, MessagesThatAreThereAtOnceLieApart) {
  std::vector<std::unique_ptr<IncomingMessage>> messages;
  for (uint64_t i = 0; i < 10; ++i) messages.push_back(Make(i));
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(messages[i]->header().sequence, i);
  EXPECT_EQ(living_, 10);
  messages.clear();
  EXPECT_EQ(living_, 0);
}

TEST_F(MessagePoolTest, WhatIsGivenBackIsTakenAgain) {
  std::set<const void*> places;
  for (uint64_t i = 0; i < 10; ++i) {
    const std::unique_ptr<IncomingMessage> first = Make(i);
    const std::unique_ptr<IncomingMessage> second = Make(i);
    places.insert({first.get(), second.get()});
  }
  EXPECT_EQ(places.size(), 2);
}

TEST_F(MessagePoolTest, WhatAFloodHasBroughtIsNotKept) {
  std::vector<std::unique_ptr<IncomingMessage>> messages;
  for (int i = 0; i < MessagePool::kSpareMax + 100; ++i) messages.push_back(Make(i));
  messages.clear();
  EXPECT_EQ(pool_.spares(), MessagePool::kSpareMax);
  const std::unique_ptr<IncomingMessage> next = Make(0);
  EXPECT_EQ(pool_.spares(), MessagePool::kSpareMax - 1);
}

}  // namespace
}  // namespace crossmesh
