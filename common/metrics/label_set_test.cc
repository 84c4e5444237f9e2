#include "common/metrics/label_set.h"

#include <cstddef>
#include <optional>

#include <absl/status/status.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(LabelSetTest, EnumerationsAndNamesAgree) {
  EXPECT_EQ(kTransferPhases[static_cast<size_t>(TransferPhase::kChecksum)], "checksum");
  EXPECT_EQ(kRelayKinds[static_cast<size_t>(RelayKind::kCopy)], "copy");
  EXPECT_EQ(kRelayResults[static_cast<size_t>(RelayResult::kAborted)], "aborted");
  EXPECT_EQ(kCommandRejections[static_cast<size_t>(CommandRejection::kBusy)], "busy");
  EXPECT_EQ(kReconnectReasons[static_cast<size_t>(ReconnectReason::kNotLeader)], "not_leader");
  EXPECT_EQ(kWorkerStates[static_cast<size_t>(WorkerStateLabel::kQuarantined)], "quarantined");
  EXPECT_EQ(kRegistrationResults[static_cast<size_t>(RegistrationResult::kThrottled)], "throttled");
  EXPECT_EQ(kWorkerLossReasons[static_cast<size_t>(WorkerLossReason::kEvicted)], "evicted");
  EXPECT_EQ(kObjectKinds[static_cast<size_t>(ObjectKind::kRunRequest)], "run_request");
  EXPECT_EQ(kRunningStates[static_cast<size_t>(RunningState::kVerifying)], "verifying");
  EXPECT_EQ(kOperationResults[static_cast<size_t>(OperationResult::kCancelled)], "cancelled");
  EXPECT_EQ(kCacheResults[static_cast<size_t>(CacheResult::kMiss)], "miss");
  EXPECT_EQ(kRpcCodes[static_cast<size_t>(absl::StatusCode::kUnauthenticated)], "UNAUTHENTICATED");
  EXPECT_EQ(kRpcCodes[static_cast<size_t>(absl::StatusCode::kAborted)], "ABORTED");
  EXPECT_EQ(FindTransportLink("ucx", "rdma"), TransportLink::kUcxRdma);
  EXPECT_EQ(FindTransportLink("inprocess", "local"), TransportLink::kInprocessLocal);
  EXPECT_EQ(FindTransportLink("inprocess", "tcp"), std::nullopt);
  EXPECT_EQ(TransportOf(TransportLink::kSocketTcp), TransportKind::kSocket);
  EXPECT_EQ(TransportOf(TransportLink::kUcxRdma), TransportKind::kUcx);
  EXPECT_EQ(TransportOf(TransportLink::kInprocessLocal), TransportKind::kInprocess);
}

}  // namespace
}  // namespace crossmesh
