#include "worker/transport/striped/striped_transport.h"

#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/socket/socket_transport.h"
#include "worker/transport/striped/striped_address.h"
#include "worker/transport/testing/inprocess_transport.h"
#include "worker/transport/testing/transport_conformance.h"
#include "worker/transport/testing/transport_conformance_processes.h"
#include "worker/transport/testing/transport_node.h"

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Arrival = TransportNode::Arrival;
using ::testing::HasSubstr;

MakeTransport Striped(const StripedTransport::MakeNic& make, size_t nics) {
  return [makers = std::vector(nics, make)](TransportSink& sink) {
    return StripedTransport::Create(sink, makers);
  };
}

// The transports of a network have so many NICs, in turn.
MakeTransport StripedInTurn(const StripedTransport::MakeNic& make, std::vector<size_t> nics) {
  return [make, nics = std::move(nics), made = std::make_shared<size_t>(0)](TransportSink& sink) {
    return Striped(make, nics[(*made)++ % nics.size()])(sink);
  };
}

StripedTransport::MakeNic InProcess(const FaultPlan& faults = {}) {
  return [fabric = std::make_shared<InProcessFabric>(faults)](TransportSink& sink) {
    return InProcessTransport::Create(*fabric, sink);
  };
}

StripedTransport::MakeNic Socket(bool shared_memory) {
  return [shared_memory](TransportSink& sink) {
    return SocketTransport::Create(sink, {.interface = "lo", .shared_memory = shared_memory});
  };
}

// Delays change when things happen, not what.
const FaultPlan kLate = {.seed = 7, .delay_probability = 0.2, .delay_polls_max = 5};

INSTANTIATE_TEST_SUITE_P(
    All, TransportConformanceTest,
    testing::Values(
        TransportUnderTest{"InProcess2", [] { return Striped(InProcess(), 2); }},
        TransportUnderTest{"InProcess3Late", [] { return Striped(InProcess(kLate), 3); }},
        TransportUnderTest{"InProcess1And2", [] { return StripedInTurn(InProcess(), {1, 2}); }},
        TransportUnderTest{"InProcess2And3", [] { return StripedInTurn(InProcess(), {2, 3}); }},
        TransportUnderTest{"InProcess8And3", [] { return StripedInTurn(InProcess(), {8, 3}); }},
        TransportUnderTest{"SocketTcp2", [] { return Striped(Socket(false), 2); }},
        TransportUnderTest{"SocketTcp1And2", [] { return StripedInTurn(Socket(false), {1, 2}); }},
        TransportUnderTest{"SocketTcp2And3", [] { return StripedInTurn(Socket(false), {2, 3}); }},
        TransportUnderTest{"SocketSharedMemory2", [] { return Striped(Socket(true), 2); }}),
    TransportUnderTest::Name);

INSTANTIATE_TEST_SUITE_P(All, KilledPeerTest, testing::Values("tcp", "shm"),
                         [](const auto& test) { return test.param; });

std::unique_ptr<TransportNode> MakeNode(const MakeTransport& make) {
  auto node = TransportNode::Create(make, Arrival::kReceive);
  CHECK_OK(node);
  return *std::move(node);
}

TEST(StripedTransportTest, EveryPairOfNicsIsALane) {
  const StripedTransport::MakeNic nic = InProcess();
  const auto a = MakeNode(Striped(nic, 2));
  const auto b = MakeNode(Striped(nic, 3));
  ASSERT_OK_AND_ASSIGN(const PeerId to_b, a->Connect(b->address()));
  ASSERT_OK_AND_ASSIGN(const PeerId to_a, b->Connect(a->address()));
  EXPECT_EQ(a->Lanes(to_b), 6);
  EXPECT_EQ(b->Lanes(to_a), 6);
}

TEST(StripedTransportTest, SharedMemoryIsOneLane) {
  const auto a = MakeNode(Striped(Socket(true), 2));
  const auto b = MakeNode(Striped(Socket(true), 3));
  ASSERT_OK_AND_ASSIGN(const PeerId peer, a->Connect(b->address()));
  EXPECT_EQ(a->Link(peer), "shm");
  EXPECT_EQ(a->Lanes(peer), 1);
}

TEST(StripedTransportTest, TheLinkIsThatOfTheLanes) {
  const auto a = MakeNode(Striped(Socket(false), 2));
  const auto b = MakeNode(Striped(Socket(false), 2));
  ASSERT_OK_AND_ASSIGN(const PeerId peer, a->Connect(b->address()));
  EXPECT_EQ(a->Link(peer), "tcp");
  EXPECT_EQ(a->Lanes(peer), 4);
}

TEST(StripedTransportTest, WithoutNicsIsRefused) {
  EXPECT_THAT(TransportNode::Create(Striped(InProcess(), 0), Arrival::kReceive),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(StripedTransportTest, TooManyNicsAreRefused) {
  EXPECT_THAT(TransportNode::Create(Striped(InProcess(), 17), Arrival::kReceive),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 17")));
}

TEST(StripedTransportTest, ANicThatCannotBeMadeIsTold) {
  const StripedTransport::MakeNic none = [](TransportSink&) {
    return absl::UnavailableError("no such NIC");
  };
  const std::array makers = {InProcess(), none};
  EXPECT_THAT(TransportNode::Create(
                  [&](TransportSink& sink) { return StripedTransport::Create(sink, makers); },
                  Arrival::kReceive),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no such NIC")));
}

TEST(StripedTransportTest, AMalformedAddressOfOneNicIsRefused) {
  const StripedTransport::MakeNic nic = InProcess();
  const auto a = MakeNode(Striped(nic, 1));
  const auto b = MakeNode(Striped(nic, 1));
  ASSERT_OK_AND_ASSIGN(StripedAddress address, StripedAddress::Decode(b->address()));
  address.nics.emplace_back("nobody");
  ASSERT_OK_AND_ASSIGN(const std::string encoded, address.Encode());
  EXPECT_THAT(a->Connect(encoded), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(const PeerId peer, a->Connect(b->address()));
  a->SendMany(peer, 1, 100);
  EXPECT_TRUE(b->WaitUntil([](const auto& record) { return record.received.size() == 1; }));
}

// A NIC from which no link leads anywhere.
class Unplugged final : public Transport {
 public:
  explicit Unplugged(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  absl::string_view name() const override { return inner_->name(); }
  const std::string& address() const override { return inner_->address(); }
  int64_t eager_bytes_max() const override { return inner_->eager_bytes_max(); }
  int pieces_max() const override { return inner_->pieces_max(); }
  int useful_pieces_max(PeerId peer) const override { return inner_->useful_pieces_max(peer); }
  absl::StatusOr<PeerId> Connect(absl::string_view /*address*/) override {
    return absl::UnavailableError("unplugged");
  }
  absl::string_view link(PeerId peer) const override { return inner_->link(peer); }
  void Send(PeerId peer, const MessageHeader& header, Pieces payload, Ticket ticket) override {
    inner_->Send(peer, header, payload, ticket);
  }
  void Disconnect(PeerId peer) override { inner_->Disconnect(peer); }
  void Break(PeerId peer, const absl::Status& why) override { inner_->Break(peer, why); }
  int Progress() override { return inner_->Progress(); }
  int event_fd() const override { return inner_->event_fd(); }
  bool Arm() override { return inner_->Arm(); }

 private:
  const std::unique_ptr<Transport> inner_;
};

StripedTransport::MakeNic Unplug(const StripedTransport::MakeNic& make) {
  return [make](TransportSink& sink) -> absl::StatusOr<std::unique_ptr<Transport>> {
    return std::make_unique<Unplugged>(*make(sink));
  };
}

TEST(StripedTransportTest, LanesThatNoLinkLeadsToAreLeftOut) {
  const StripedTransport::MakeNic nic = InProcess();
  const std::array makers = {Unplug(nic), nic};
  const auto a =
      MakeNode([&](TransportSink& sink) { return StripedTransport::Create(sink, makers); });
  const auto b = MakeNode(Striped(nic, 2));
  ASSERT_OK_AND_ASSIGN(const PeerId peer, a->Connect(b->address()));
  EXPECT_EQ(a->Lanes(peer), 2);
  a->SendMany(peer, 8, 100);
  EXPECT_TRUE(b->WaitUntil([](const auto& record) { return record.received.size() == 8; }));
}

TEST(StripedTransportTest, APeerWithoutAnyLinkIsUnavailable) {
  const StripedTransport::MakeNic nic = InProcess();
  const auto a = MakeNode(Striped(Unplug(nic), 2));
  const auto b = MakeNode(Striped(nic, 2));
  EXPECT_THAT(a->Connect(b->address()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("unplugged")));
}

}  // namespace

MakeTransport MakeOfMode(absl::string_view mode) { return Striped(Socket(mode == "shm"), 2); }

}  // namespace crossmesh

int main(int argc, char** argv) { return crossmesh::RunTestsOrPeer(argc, argv); }
