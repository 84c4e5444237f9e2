// What every transport between processes does when one is killed. An implementation's test says
//
//   INSTANTIATE_TEST_SUITE_P(All, KilledPeerTest, testing::Values("tcp", "shm"));
//
//   MakeTransport crossmesh::MakeOfMode(absl::string_view mode) { ... }
//
//   int main(int argc, char** argv) { return crossmesh::RunTestsOrPeer(argc, argv); }

#pragma once

#include "common/base/clock.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/testing/peer_process.h"
#include "worker/transport/testing/transport_node.h"

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

// The transport under test that `mode` names. The test defines it.
MakeTransport MakeOfMode(absl::string_view mode);

// The peer process is the same program.
inline int RunTestsOrPeer(int argc, char** argv) {
  if (argc == 3 && absl::string_view(argv[1]) == PeerProcess::kArgument) {
    return PeerProcess::Main(MakeOfMode(argv[2]));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// The parameter: the mode.
class KilledPeerTest : public testing::TestWithParam<std::string> {};

TEST_P(KilledPeerTest, APeerKilledInTheMiddleOfTransfersIsLostWithinASecond) {
  ASSERT_OK_AND_ASSIGN(PeerProcess process, PeerProcess::Start(GetParam()));
  ASSERT_OK_AND_ASSIGN(const auto node, TransportNode::Create(MakeOfMode(GetParam()),
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
  EXPECT_THAT(record.violations, testing::IsEmpty());
  EXPECT_TRUE(node->FailedDestinationsUntouched());
}

}  // namespace crossmesh
