#include "worker/transport/socket/sink_queue.h"

#include "worker/transport/socket/testing/recording_sink.h"

#include <memory>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Message final : public IncomingMessage {
 public:
  explicit Message(uint64_t sequence) : header_({.sequence = sequence}) {}
  const MessageHeader& header() const override { return header_; }
  void Receive(Pieces /*into*/, Ticket /*ticket*/) override {}

 private:
  const MessageHeader header_;
};

TEST(SinkQueueTest, AllIsToldOnceAndInOrder) {
  SinkQueue queue;
  RecordingSink sink;
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.TellTo(sink), 0);
  queue.AddSent(1, absl::OkStatus());
  queue.AddMessage(std::make_unique<Message>(5));
  queue.AddReceived(2, absl::UnavailableError("gone"));
  queue.AddSent(3, absl::CancelledError("ended"));
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(queue.TellTo(sink), 4);
  EXPECT_TRUE(queue.empty());
  EXPECT_THAT(sink.TakeEvents(),
              ElementsAre("sent 1 OK", "message 5", "received 2 UNAVAILABLE", "sent 3 CANCELLED"));
  EXPECT_EQ(queue.TellTo(sink), 0);
  EXPECT_THAT(sink.TakeEvents(), IsEmpty());
}

TEST(SinkQueueTest, WhatTheSinkAddsIsForTheNextCall) {
  SinkQueue queue;
  RecordingSink sink;
  sink.then = [&] { queue.AddSent(2, absl::OkStatus()); };
  queue.AddSent(1, absl::OkStatus());
  EXPECT_EQ(queue.TellTo(sink), 1);
  EXPECT_THAT(sink.TakeEvents(), ElementsAre("sent 1 OK"));
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(queue.TellTo(sink), 1);
  EXPECT_THAT(sink.TakeEvents(), ElementsAre("sent 2 OK"));
}

TEST(SinkQueueTest, WhatIsClearedIsNotTold) {
  SinkQueue queue;
  RecordingSink sink;
  queue.AddMessage(std::make_unique<Message>(1));
  queue.Clear();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.TellTo(sink), 0);
}

}  // namespace
}  // namespace crossmesh
