#include "worker/transport/ucx/ucx_transport.h"

#include "common/testing/status_matchers.h"
#include "worker/transport/testing/transport_conformance.h"
#include "worker/transport/testing/transport_conformance_processes.h"
#include "worker/transport/testing/transport_node.h"

#include <absl/strings/string_view.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

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

INSTANTIATE_TEST_SUITE_P(All, KilledPeerTest, testing::Values("tcp", "shm"),
                         [](const auto& test) { return test.param; });

// The parameter: is shared memory used?
class UcxTransportTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(All, UcxTransportTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "SharedMemory" : "Tcp"; });

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

MakeTransport MakeOfMode(absl::string_view mode) { return MakeUcx(mode == "shm"); }

}  // namespace crossmesh

int main(int argc, char** argv) { return crossmesh::RunTestsOrPeer(argc, argv); }
