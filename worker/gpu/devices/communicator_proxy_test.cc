#include "worker/gpu/devices/communicator_proxy.h"

#include "common/base/status_macros.h"
#include "common/testing/status_matchers.h"
#include "worker/gpu/devices/testing/stand_in_gpus.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Orders of controllers for a communicator of one rank.
class CommunicatorProxyTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(gpus_.Open());
    proxy_.emplace(gpus_.devices());
  }
  void TearDown() override {
    gpus_.Stop();
    EXPECT_EQ(gpus_.Violations(), "");
  }

  CommunicatorKey KeyOf(uint64_t epoch) {
    return {.ranks = {gpus_["a.0"].rank()}, .purpose = "relay", .epoch = epoch};
  }
  absl::StatusOr<std::string> MintId(uint64_t epoch) {
    std::optional<absl::StatusOr<std::string>> minted;
    proxy_->MintId(gpus_["a.0"].rank(), epoch, [&](auto id) { minted = std::move(id); });
    gpus_.RunUntil([&] { return minted.has_value(); });
    return *minted;
  }
  absl::StatusOr<int64_t> Create(uint64_t epoch, uint64_t ticket) {
    const CommunicatorKey key = KeyOf(epoch);
    ASSIGN_OR_RETURN(const std::string id, MintId(epoch));
    const v1::GpuRequest request = CreateCommunicatorRequest({.key = key, .ticket = ticket}, id);
    std::optional<absl::StatusOr<int64_t>> made;
    proxy_->Create({.key = key, .rank = key.ranks.front()}, request.create_communicator(),
                   [&](auto bytes) { made = bytes; });
    gpus_.RunUntil([&] { return made.has_value(); });
    return *made;
  }
  // NotFound when nothing is left of it.
  absl::Status StopAtItsProcess(const CommunicatorKey& key) {
    return gpus_.Call(gpus_["a.0"], StopCommunicatorRequest(key, absl::AbortedError("test")))
        .status();
  }

  StandInGpus gpus_{{"a.0"}};
  std::optional<CommunicatorProxy> proxy_;
};

TEST_F(CommunicatorProxyTest, ALaterEpochStopsWhatEarlierOnesMadeAndTheyAreRefused) {
  ASSERT_OK(Create(1, 1));
  ASSERT_OK(MintId(2));
  EXPECT_THAT(StopAtItsProcess(KeyOf(1)), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Create(1, 2), StatusIs(absl::StatusCode::kAborted));
}

// One that comes twice, and one that comes late.
TEST_F(CommunicatorProxyTest, AnOrderThatIsRefusedLeavesTheCommunicatorToBeStopped) {
  ASSERT_OK(Create(1, 7));
  EXPECT_THAT(Create(1, 8), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Create(1, 6), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(MintId(2));
  EXPECT_THAT(StopAtItsProcess(KeyOf(1)), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace crossmesh
