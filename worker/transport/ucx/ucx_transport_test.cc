#include "worker/transport/ucx/ucx_transport.h"

#include "common/base/clock.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/testing/transport_conformance.h"
#include "worker/transport/testing/transport_node.h"
#include "worker/transport/ucx/ucx_peer_process.h"

#include <absl/strings/string_view.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::IsEmpty;

MakeTransport MakeUcx(bool shared_memory) {
  return [shared_memory](TransportSink& sink) {
    return UcxTransport::Create(sink, {.net_devices = {"lo"}, .shared_memory = shared_memory});
  };
}

INSTANTIATE_TEST_SUITE_P(
    All, TransportConformanceTest,
    testing::Values(TransportUnderTest{"UcxTcp", [] { return MakeUcx(false); }},
                    TransportUnderTest{"UcxSharedMemory", [] { return MakeUcx(true); }}),
    TransportUnderTest::Name);

// The parameter: is shared memory used?
class UcxTransportTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(All, UcxTransportTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "SharedMemory" : "Tcp"; });

TEST_P(UcxTransportTest, APeerKilledInTheMiddleOfTransfersIsLostWithinASecond) {
  ASSERT_OK_AND_ASSIGN(UcxPeerProcess process, UcxPeerProcess::Start(GetParam()));
  ASSERT_OK_AND_ASSIGN(const auto node, TransportNode::Create(MakeUcx(GetParam()),
                                                              TransportNode::Arrival::kReceive));
  ASSERT_OK_AND_ASSIGN(const PeerId peer, node->Connect(process.address()));
  process.ConnectTo(node->address());
  node->SendMany(peer, 8, 8 << 20);  // the process parks them
  ASSERT_TRUE(
      node->WaitUntil([](const TransportRecord& record) { return record.received.size() > 20; }));

  process.Kill();
  const RealClock clock;
  const absl::Duration killed = clock.Monotonic();
  ASSERT_TRUE(node->WaitUntil([](const TransportRecord& record) { return !record.lost.empty(); }));
  EXPECT_LT(clock.Monotonic() - killed, absl::Seconds(1));
  const TransportRecord record = node->record();
  EXPECT_EQ(record.lost[0].peer, peer);
  EXPECT_EQ(record.lost[0].sends_open, 0);
  EXPECT_EQ(record.receives_open, 0);
  EXPECT_EQ(record.sent.size(), 8);
  for (const auto& [ticket, status] : record.sent) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  }
  EXPECT_THAT(record.violations, IsEmpty());
  EXPECT_TRUE(node->FailedDestinationsUntouched());
}

TEST_P(UcxTransportTest, TheLinkIsNamed) {
  ASSERT_OK_AND_ASSIGN(
      const auto a, TransportNode::Create(MakeUcx(GetParam()), TransportNode::Arrival::kReceive));
  ASSERT_OK_AND_ASSIGN(const auto b,
                       TransportNode::Create(MakeUcx(true), TransportNode::Arrival::kReceive));
  ASSERT_OK_AND_ASSIGN(const PeerId peer, a->Connect(b->address()));
  EXPECT_EQ(a->Link(peer), GetParam() ? "shm" : "tcp");
}

TEST(UcxTransportCreateTest, WithoutDevicesIsRefused) {
  EXPECT_THAT(
      TransportNode::Create([](TransportSink& sink) { return UcxTransport::Create(sink, {}); },
                            TransportNode::Arrival::kReceive),
      StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(UcxTransportCreateTest, AnUnknownDeviceIsNamed) {
  EXPECT_THAT(TransportNode::Create(
                  [](TransportSink& sink) {
                    return UcxTransport::Create(sink, {.net_devices = {"nosuchdevice0"}});
                  },
                  TransportNode::Arrival::kReceive),
              StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("nosuchdevice0")));
}

}  // namespace
}  // namespace crossmesh

// The peer process is this program as well.
int main(int argc, char** argv) {
  if (argc == 3 && absl::string_view(argv[1]) == crossmesh::UcxPeerProcess::kArgument) {
    return crossmesh::UcxPeerProcess::Main(argv[2]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
