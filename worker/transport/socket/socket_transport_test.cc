#include "worker/transport/socket/socket_transport.h"

#include "common/base/check.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/testing/sealed_memory.h"
#include "worker/transport/testing/system_filter.h"
#include "worker/transport/testing/transport_conformance.h"
#include "worker/transport/testing/transport_conformance_processes.h"
#include "worker/transport/testing/transport_node.h"

#include <cerrno>
#include <cstddef>
#include <memory>
#include <vector>

#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>

namespace crossmesh {
namespace {

MakeTransport MakeSocket(bool shared_memory) {
  return [shared_memory](TransportSink& sink) {
    return SocketTransport::Create(sink, {.interface = "lo", .shared_memory = shared_memory});
  };
}

INSTANTIATE_TEST_SUITE_P(
    All, TransportConformanceTest,
    testing::Values(TransportUnderTest{"SocketTcp", [] { return MakeSocket(false); }},
                    TransportUnderTest{"SocketSharedMemory", [] { return MakeSocket(true); }}),
    TransportUnderTest::Name);

INSTANTIATE_TEST_SUITE_P(All, KilledPeerTest, testing::Values("tcp", "shm"),
                         [](const auto& test) { return test.param; });

// The parameter: is shared memory used?
class SocketTransportTest : public testing::TestWithParam<bool> {
 protected:
  using Arrival = TransportNode::Arrival;

  static std::unique_ptr<TransportNode> MakeNode(Arrival arrival = Arrival::kReceive) {
    auto node = TransportNode::Create(MakeSocket(GetParam()), arrival);
    CHECK_OK(node);
    return *std::move(node);
  }
};

INSTANTIATE_TEST_SUITE_P(All, SocketTransportTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "SharedMemory" : "Tcp"; });

TEST_P(SocketTransportTest, TheLinkIsNamed) {
  const auto a = MakeNode();
  ASSERT_OK_AND_ASSIGN(const auto b, TransportNode::Create(MakeSocket(true), Arrival::kReceive));
  ASSERT_OK_AND_ASSIGN(const PeerId peer, a->Connect(b->address()));
  EXPECT_EQ(a->Link(peer), GetParam() ? "shm" : "tcp");
}

TEST_P(SocketTransportTest, SmallMessagesOvertakeLargeOnesThatWait) {
  const auto a = MakeNode();
  const auto b = MakeNode(Arrival::kPark);
  ASSERT_OK_AND_ASSIGN(const PeerId peer, a->Connect(b->address()));
  a->SendMany(peer, 4, 32 << 20);
  const Ticket small = a->Send(peer, {.sequence = 4}, std::vector<std::byte>(10));
  ASSERT_TRUE(b->WaitUntil([](const auto& record) { return record.announced.size() == 5; }));
  EXPECT_TRUE(a->WaitUntil([&](const auto& record) { return record.sent.contains(small); }));
  EXPECT_EQ(a->record().sent.size(), 1);
}

TEST(SocketLendingTest, WhatIsReclaimedIsUnmappedByPeers) {
  using Arrival = TransportNode::Arrival;
  ASSERT_OK_AND_ASSIGN(const auto a, TransportNode::Create(MakeSocket(true), Arrival::kReceive));
  ASSERT_OK_AND_ASSIGN(const auto b, TransportNode::Create(MakeSocket(true), Arrival::kPark));
  ASSERT_OK_AND_ASSIGN(const PeerId peer, a->Connect(b->address()));
  a->SendMany(peer, 4, 1 << 20);  // lends two of them
  ASSERT_TRUE(b->WaitUntil([](const auto& record) { return record.announced.size() == 4; }));
  EXPECT_EQ(SealedMemory::CountMappings(), 4);
  b->ReceiveHeld(0, 4);
  ASSERT_TRUE(a->WaitUntil([](const auto& record) { return record.sent.size() == 4; }));
  // Comes after what makes the peer forget them.
  a->SendMany(peer, 1, 0);
  ASSERT_TRUE(b->WaitUntil([](const auto& record) { return record.announced.size() == 5; }));
  EXPECT_EQ(SealedMemory::CountMappings(), 0);
}

TEST(SocketLendingTest, WhereMappingIsRefusedPayloadsComeOverTheStream) {
  using Arrival = TransportNode::Arrival;
  ASSERT_OK_AND_ASSIGN(const auto a, TransportNode::Create(MakeSocket(true), Arrival::kReceive));
  std::unique_ptr<TransportNode> b;
  Thread("filtered", [&] {
    FilterSharedMappings(SECCOMP_RET_ERRNO | EPERM);
    b = *TransportNode::Create(MakeSocket(true), Arrival::kReceive);
  }).Join();
  ASSERT_OK_AND_ASSIGN(const PeerId peer, a->Connect(b->address()));
  EXPECT_EQ(a->Link(peer), "shm");
  a->SendMany(peer, 8, 1 << 20);
  ASSERT_TRUE(b->WaitUntil([](const auto& record) { return record.received.size() == 8; }));
  for (const auto& received : b->record().received) {
    EXPECT_OK(received.status);
    EXPECT_EQ(received.payload.back(), static_cast<std::byte>(received.header.sequence));
  }
}

TEST(SocketConnectionTest, OneThatEndedBeforeThisSideConnectedDoesNotMatter) {
  constexpr int64_t kBytes = 1 << 20;
  using Arrival = TransportNode::Arrival;
  ASSERT_OK_AND_ASSIGN(const auto a, TransportNode::Create(MakeSocket(false), Arrival::kReceive));
  ASSERT_OK_AND_ASSIGN(const auto b, TransportNode::Create(MakeSocket(false), Arrival::kPark));
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const PeerId ended, a->Connect(b->address()));
    a->SendMany(ended, 1, kBytes);
    ASSERT_TRUE(b->WaitUntil([&](const auto& record) { return record.announced.size() > i; }));
    a->Disconnect(ended);
    b->ReceiveHeld(i);  // fails when the end is noticed
    ASSERT_TRUE(b->WaitUntil([&](const auto& record) { return record.received.size() > i; }));
    EXPECT_THAT(b->record().received[i].status, StatusIs(absl::StatusCode::kUnavailable));
  }
  ASSERT_OK_AND_ASSIGN(const PeerId to_a, b->Connect(a->address()));
  b->SendMany(to_a, 1, kBytes);
  EXPECT_TRUE(a->WaitUntil([](const auto& record) { return record.received.size() == 1; }));
  // It is the other end of the next one.
  ASSERT_OK_AND_ASSIGN(const PeerId to_b, a->Connect(b->address()));
  a->Disconnect(to_b);
  EXPECT_TRUE(b->WaitUntil(
      [&](const auto& record) { return record.lost.size() == 1 && record.lost[0].peer == to_a; }));
}

TEST(SocketTransportCreateTest, AnUnknownInterfaceIsNamed) {
  EXPECT_THAT(TransportNode::Create(
                  [](TransportSink& sink) {
                    return SocketTransport::Create(sink, {.interface = "nosuchdevice0"});
                  },
                  TransportNode::Arrival::kReceive),
              StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("nosuchdevice0")));
}

}  // namespace

MakeTransport MakeOfMode(absl::string_view mode) { return MakeSocket(mode == "shm"); }

}  // namespace crossmesh

int main(int argc, char** argv) { return crossmesh::RunTestsOrPeer(argc, argv); }
