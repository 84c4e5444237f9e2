// What every implementation of Transport does. An implementation's test says
//
//   INSTANTIATE_TEST_SUITE_P(InProcess, TransportConformanceTest,
//                            testing::Values(TransportUnderTest{"InProcess", ...}),
//                            TransportUnderTest::Name);

#pragma once

#include "common/testing/status_matchers.h"
#include "worker/transport/testing/transport_conformance_failures.h"
#include "worker/transport/testing/transport_conformance_fixture.h"
#include "worker/transport/testing/transport_node.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(TransportConformanceTest, HeadersAndPayloadsOfAllSizesArriveIntact) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode();
  const PeerId peer = Connect(a, b);
  size_t count = 0;
  for (const int64_t bytes :
       {0L, 1L, 777L, 8191L, 8192L, 8193L, 65535L, 65536L, 1L << 20, 8L << 20}) {
    const std::vector<std::byte> payload = RandomBytes(random_, bytes);
    MessageHeader header = {.token_high = random_(),
                            .token_low = random_(),
                            .operation = random_(),
                            .epoch = random_(),
                            .plan = static_cast<uint32_t>(random_()),
                            .instance = static_cast<uint32_t>(random_()),
                            .channel = static_cast<uint32_t>(random_()),
                            .kind = static_cast<uint32_t>(random_()),
                            .sequence = random_()};
    const Ticket ticket = a.Send(peer, header, payload);
    ASSERT_TRUE(WaitReceived(b, ++count)) << bytes;
    ASSERT_TRUE(WaitSent(a, count)) << bytes;
    EXPECT_OK(a.record().sent[ticket]);
    header.payload_bytes = static_cast<uint64_t>(bytes);
    const TransportRecord::Received received = b.record().received.back();
    EXPECT_OK(received.status);
    EXPECT_TRUE(received.header == header) << bytes;
    EXPECT_TRUE(received.payload == payload) << bytes;
  }
}

TEST_P(TransportConformanceTest, MessagesOfOneLaneAreAnnouncedInTheOrderSent) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode();
  const PeerId peer = Connect(a, b);
  constexpr uint64_t kCount = 200;
  for (uint64_t i = 0; i < kCount; ++i) {
    const int64_t bytes = std::vector<int64_t>{0, 100, 20000, 100000}[random_() % 4];
    a.Send(peer, {.sequence = i}, RandomBytes(random_, bytes));
  }
  ASSERT_TRUE(WaitReceived(b, kCount));
  ExpectSequences(b, kCount, /*in_order=*/a.Lanes(peer) == 1);
}

TEST_P(TransportConformanceTest, HeldMessagesAreReceivedLaterInAnyOrder) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode(Arrival::kPark);
  const PeerId peer = Connect(a, b);
  const std::vector<std::byte> small = RandomBytes(random_, 100);
  const std::vector<std::byte> large = RandomBytes(random_, kLarge);
  a.Send(peer, {.sequence = 0}, small);
  ASSERT_TRUE(WaitAnnounced(b, 1));
  a.Send(peer, {.sequence = 1}, large);
  ASSERT_TRUE(WaitAnnounced(b, 2));
  b.ReceiveHeld(1);
  ASSERT_TRUE(WaitReceived(b, 1));
  b.ReceiveHeld(0);
  ASSERT_TRUE(WaitReceived(b, 2));
  EXPECT_TRUE(b.record().received[0].payload == large);
  EXPECT_TRUE(b.record().received[1].payload == small);
  EXPECT_TRUE(WaitSent(a, 2));
}

TEST_P(TransportConformanceTest, ALargeSendCompletesOnlyAfterReceive) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode(Arrival::kPark);
  const PeerId to_b = Connect(a, b);
  const PeerId to_a = Connect(b, a);
  const Ticket ticket = a.Send(to_b, {}, RandomBytes(random_, kLarge));
  ASSERT_TRUE(WaitAnnounced(b, 1));
  // Much else happens on the connection meanwhile.
  for (size_t i = 1; i <= 20; ++i) {
    b.Send(to_a, {}, {});
    ASSERT_TRUE(WaitReceived(a, i));
  }
  EXPECT_FALSE(a.record().sent.contains(ticket));
  b.ReceiveHeld(0);
  ASSERT_TRUE(WaitSent(a, 1));
  EXPECT_OK(a.record().sent[ticket]);
}

TEST_P(TransportConformanceTest, ADroppedMessageCompletesAtItsSender) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode(Arrival::kDrop);
  const PeerId peer = Connect(a, b);
  for (const int64_t bytes : {0L, 100L, 20000L, kLarge})
    a.Send(peer, {}, RandomBytes(random_, bytes));
  EXPECT_TRUE(WaitSent(a, 4));
}

TEST_P(TransportConformanceTest, AHeldMessageCanBeDroppedLater) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode(Arrival::kPark);
  const PeerId peer = Connect(a, b);
  for (const int64_t bytes : {100L, kLarge}) a.Send(peer, {}, RandomBytes(random_, bytes));
  ASSERT_TRUE(WaitAnnounced(b, 2));
  b.DropHeld(0);
  b.DropHeld(1);
  EXPECT_TRUE(WaitSent(a, 2));
}

TEST_P(TransportConformanceTest, ManyPeersTalkAllToAll) {
  constexpr size_t kNodes = 6;
  constexpr size_t kMessages = 8;
  std::vector<TransportNode*> nodes;
  for (size_t i = 0; i < kNodes; ++i) nodes.push_back(&AddNode());
  for (TransportNode* from : nodes) {
    for (TransportNode* to : nodes) {
      if (from != to) from->SendMany(Connect(*from, *to), kMessages, 50000);
    }
  }
  for (TransportNode* node : nodes) {
    EXPECT_TRUE(WaitReceived(*node, (kNodes - 1) * kMessages));
    EXPECT_TRUE(WaitSent(*node, (kNodes - 1) * kMessages));
    for (const auto& received : node->record().received) {
      EXPECT_OK(received.status);
      EXPECT_EQ(received.payload.back(), static_cast<std::byte>(received.header.sequence));
    }
  }
}

TEST_P(TransportConformanceTest, BothDirectionsRunAtOnce) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode();
  const PeerId to_b = Connect(a, b);
  const PeerId to_a = Connect(b, a);
  a.SendMany(to_b, 32, 1 << 18);
  b.SendMany(to_a, 32, 1 << 18);
  for (TransportNode* node : {&a, &b}) {
    EXPECT_TRUE(WaitReceived(*node, 32));
    EXPECT_TRUE(WaitSent(*node, 32));
  }
}

TEST_P(TransportConformanceTest, ATransportReachesItself) {
  TransportNode& a = AddNode();
  const PeerId peer = Connect(a, a);
  a.SendMany(peer, 4, 100);
  a.SendMany(peer, 4, kLarge);
  EXPECT_TRUE(WaitReceived(a, 8));
  EXPECT_TRUE(WaitSent(a, 8));
}

TEST_P(TransportConformanceTest, AWindowOf64LargeMessagesCompletes) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode(Arrival::kPark);
  a.SendMany(Connect(a, b), 64, 1 << 18);
  ASSERT_TRUE(WaitAnnounced(b, 64));
  b.ReceiveHeld(0, 64);
  EXPECT_TRUE(WaitReceived(b, 64));
  EXPECT_TRUE(WaitSent(a, 64));
}

TEST_P(TransportConformanceTest, ThousandsOfTinyMessagesArriveOnce) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode();
  constexpr int kCount = 5000;
  const PeerId peer = Connect(a, b);
  a.SendMany(peer, kCount, 16);
  ASSERT_TRUE(WaitReceived(b, kCount));
  EXPECT_TRUE(WaitSent(a, kCount));
  ExpectSequences(b, kCount, /*in_order=*/a.Lanes(peer) == 1);
}

TEST_P(TransportConformanceTest, ConnectingTwiceGivesTwoPeers) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode();
  const PeerId first = Warm(a, b);
  const PeerId second = Warm(a, b);
  EXPECT_NE(first, second);
  a.Disconnect(first);
  a.Send(second, {}, RandomBytes(random_, kLarge));
  EXPECT_TRUE(WaitReceived(b, 3));
}

TEST_P(TransportConformanceTest, ForeignAddressesAreRefused) {
  TransportNode& a = AddNode();
  TransportNode& b = AddNode();
  const std::string good = b.address();
  EXPECT_LE(good.size(), 4096);
  std::vector<std::string> bad = {"",
                                  "x",
                                  std::string(200, '\0'),
                                  good.substr(0, good.size() / 2),
                                  good.substr(0, good.size() - 1),
                                  good + "0",
                                  "http://localhost:1"};
  for (size_t i = 0; i < good.size(); ++i) {
    std::string flipped = good;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x80);
    bad.push_back(flipped);
  }
  for (const std::string& address : bad) {
    EXPECT_THAT(a.Connect(address), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_NE(good, a.address());
}

}  // namespace crossmesh
