#include "worker/executor/relay_progress.h"

#include "common/base/check.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/testing/executor_fixture.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// What b.0 and b.1 have of MakePlan("a.0", "b.0-1"): a node each, of 32 chunks.
class RelayProgressTest : public testing::Test {
 protected:
  static std::shared_ptr<const PreparedPart> MakePart() {
    const Plan plan = MakePlan("a.0", "b.0-1");
    const std::vector<std::vector<DeviceId>> devices = {{{"a", 0}}, {{"b", 0}, {"b", 1}}};
    std::vector<WorkerPart> parts = *CutParts(plan, devices);
    return *PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts[1])));
  }

  void Put(int32_t chunk) { progress_.OnChunkInPlace({.node = 0, .chunk = chunk}); }
  // All chunks of a node, with leaves of these hashes and the following ones. Returns the checksum.
  uint64_t PutAll(int32_t node, uint64_t hash) {
    std::vector<uint64_t> hashes;
    for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
      for (uint64_t& leaf : progress_.LeafHashes({.node = node, .chunk = chunk})) {
        leaf = hash++;
        hashes.push_back(leaf);
      }
      progress_.OnChunkInPlace({.node = node, .chunk = chunk});
    }
    return ChecksumOfLeaves(hashes);
  }
  // All that the node's device expects. Returns the checksum.
  uint64_t Complete(int32_t node, uint64_t hash) {
    const uint64_t checksum = PutAll(node, hash);
    progress_.OnRootChecksum(node, checksum);
    progress_.OnItemDone(part_->nodes()[node].device, 0);  // the opening
    return checksum;
  }
  static Digest DigestOf(uint64_t checksum) {
    return Digest::Of(std::as_bytes(std::span(&checksum, 1)));
  }
  bool CanSend(int32_t chunk, int32_t lag) {
    return progress_.CanSend({.node = 0, .chunk = chunk}, lag);
  }

  static constexpr int32_t kChunks = 32;
  const std::shared_ptr<const PreparedPart> part_ = MakePart();
  std::vector<int32_t> told_;
  RelayProgress progress_{*part_, /*checksums=*/true,
                          [this](int32_t node) { told_.push_back(node); }};
};

TEST_F(RelayProgressTest, AChunkGoesOnWhenSoManyMoreHaveCome) {
  ASSERT_EQ(part_->nodes()[0].chunks, kChunks);
  Put(0);
  EXPECT_TRUE(CanSend(0, 0));
  EXPECT_FALSE(CanSend(0, 1));
  Put(1);
  EXPECT_TRUE(CanSend(0, 1));
  EXPECT_FALSE(CanSend(0, 2));
  Put(5);
  EXPECT_FALSE(CanSend(4, 1)) << "it is not here itself";
}

TEST_F(RelayProgressTest, TheLastChunkStandsForThoseThatDoNotExist) {
  Put(kChunks - 2);
  EXPECT_FALSE(CanSend(kChunks - 2, 1));
  EXPECT_FALSE(CanSend(kChunks - 2, 9));
  Put(kChunks - 1);
  EXPECT_TRUE(CanSend(kChunks - 2, 9));
  EXPECT_TRUE(CanSend(kChunks - 1, 9));
}

TEST_F(RelayProgressTest, ADeviceThatFailedHasNoDigest) {
  progress_.OnRootChecksum(0, 0x1234);
  for (int32_t chunk = 0; chunk < kChunks / 2; ++chunk) Put(chunk);
  progress_.FailNode(0, absl::UnavailableError("worker w0 is lost"));
  const std::optional<DeviceReport> report = progress_.TakeSettledDevice();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->status, absl::UnavailableError("worker w0 is lost"));
  EXPECT_EQ(report->bytes, 0);
  EXPECT_EQ(report->digest, Digest());
}

TEST_F(RelayProgressTest, ADeviceIsCompleteWithItsRelayAndItsOpening) {
  const uint64_t checksum = PutAll(0, 100);
  EXPECT_EQ(progress_.chunks_in_place(0), kChunks);
  EXPECT_FALSE(progress_.settled(0)) << "its checksum has not come";
  EXPECT_EQ(progress_.RootChecksum(0), std::nullopt);
  progress_.OnRootChecksum(0, checksum);
  EXPECT_TRUE(progress_.settled(0));
  EXPECT_EQ(progress_.RootChecksum(0), checksum);
  EXPECT_FALSE(progress_.device_settled(1)) << "its channel is not open";
  EXPECT_EQ(progress_.TakeSettledDevice(), std::nullopt);
  progress_.OnItemDone(1, 0);
  EXPECT_TRUE(progress_.device_settled(1));
  EXPECT_FALSE(progress_.device_settled(2));
  const std::optional<DeviceReport> report = progress_.TakeSettledDevice();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->device, 1);
  EXPECT_OK(report->status);
  EXPECT_EQ(report->bytes, kChunks * Plan::kLeafBytes);
  EXPECT_EQ(report->digest, DigestOf(checksum));
  EXPECT_EQ(progress_.TakeSettledDevice(), std::nullopt);
}

TEST_F(RelayProgressTest, AllIsTakenWhenTheLastDeviceIs) {
  Complete(0, 100);
  EXPECT_TRUE(progress_.TakeSettledDevice().has_value());
  EXPECT_FALSE(progress_.all_nodes_settled());
  EXPECT_FALSE(progress_.all_devices_taken());
  const uint64_t checksum = Complete(1, 500);
  EXPECT_TRUE(progress_.all_nodes_settled());
  EXPECT_FALSE(progress_.all_devices_taken());
  const std::optional<DeviceReport> report = progress_.TakeSettledDevice();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->device, 2);
  EXPECT_EQ(report->digest, DigestOf(checksum)) << "of this device alone";
  EXPECT_TRUE(progress_.all_devices_taken());
  EXPECT_EQ(progress_.relays_succeeded(), 2);
  EXPECT_EQ(progress_.relays_failed(), 0);
  EXPECT_EQ(progress_.checksum_failures(), 0);
}

TEST_F(RelayProgressTest, AnotherChecksumFailsTheRelayAndItsDevice) {
  const uint64_t checksum = PutAll(0, 100);
  progress_.OnRootChecksum(0, checksum + 1);
  EXPECT_TRUE(progress_.settled(0));
  EXPECT_THAT(progress_.failure(0),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("relay 0 at b.0")));
  EXPECT_EQ(progress_.checksum_failures(), 1);
  EXPECT_EQ(progress_.relays_failed(), 1);
  EXPECT_EQ(progress_.relays_succeeded(), 0);
  const std::optional<DeviceReport> report = progress_.TakeSettledDevice();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->status, progress_.failure(0));
  EXPECT_EQ(progress_.TakeSettledDevice(), std::nullopt);
}

TEST_F(RelayProgressTest, OnlyTheFirstFailureCounts) {
  const absl::Status first = absl::UnavailableError("worker w0 is lost");
  const absl::Status second = absl::CancelledError("enough");
  const uint64_t checksum = PutAll(0, 100);
  progress_.FailNode(0, first);
  progress_.FailNode(0, second);
  progress_.FailDevice(1, second);
  EXPECT_EQ(progress_.failure(0), first);
  EXPECT_EQ(progress_.relays_failed(), 1);
  EXPECT_EQ(progress_.TakeSettledDevice()->status, first);
  // The rest of it, which was on its way.
  progress_.OnRootChecksum(0, checksum);
  EXPECT_EQ(progress_.relays_succeeded(), 0);
  EXPECT_EQ(progress_.failure(0), first);
  Complete(1, 500);
  EXPECT_TRUE(progress_.all_nodes_settled());
}

TEST_F(RelayProgressTest, WhatHasComeOrIsNotWantedIsNotTaken) {
  EXPECT_TRUE(progress_.TakeChunk({.node = 0, .chunk = 3}));
  EXPECT_FALSE(progress_.TakeChunk({.node = 0, .chunk = 3}));
  EXPECT_TRUE(progress_.TakeChunk({.node = 1, .chunk = 3}));
  EXPECT_TRUE(progress_.TakeEnd(0));
  EXPECT_FALSE(progress_.TakeEnd(0));
  progress_.FailNode(1, absl::UnavailableError("worker w0 is lost"));
  EXPECT_FALSE(progress_.TakeChunk({.node = 1, .chunk = 4}));
  EXPECT_FALSE(progress_.TakeEnd(1));
}

TEST_F(RelayProgressTest, TellsOfEveryChunkChecksumAndFailure) {
  Put(7);
  EXPECT_THAT(told_, ElementsAre(0));
  progress_.OnRootChecksum(1, 0x1234);
  EXPECT_THAT(told_, ElementsAre(0, 1));
  progress_.FailNode(0, absl::CancelledError("enough"));
  EXPECT_THAT(told_, ElementsAre(0, 1, 0));
  progress_.FailNode(0, absl::CancelledError("enough"));
  EXPECT_THAT(told_, SizeIs(3));
}

TEST_F(RelayProgressTest, RewoundItHasNothingAndTakesAllAgain) {
  progress_.AwaitSource(0);
  EXPECT_TRUE(progress_.TakeChunk({.node = 0, .chunk = 0}));
  EXPECT_TRUE(progress_.TakeEnd(0));
  Complete(0, 100);
  EXPECT_TRUE(progress_.TakeSettledDevice().has_value());
  PutAll(1, 500);
  progress_.OnRootChecksum(1, 0);
  EXPECT_TRUE(progress_.TakeSettledDevice().has_value());

  progress_.Rewind();
  EXPECT_TRUE(progress_.is_source_ready(0));
  EXPECT_EQ(progress_.relays_succeeded(), 0);
  EXPECT_EQ(progress_.relays_failed(), 0);
  EXPECT_EQ(progress_.checksum_failures(), 0);
  EXPECT_EQ(progress_.TakeSettledDevice(), std::nullopt);
  EXPECT_FALSE(progress_.all_devices_taken());
  for (const int32_t node : {0, 1}) {
    EXPECT_FALSE(progress_.settled(node));
    EXPECT_OK(progress_.failure(node));
    EXPECT_EQ(progress_.chunks_in_place(node), 0);
    EXPECT_EQ(progress_.RootChecksum(node), std::nullopt);
    EXPECT_FALSE(progress_.CanSend({.node = node, .chunk = 0}, 0));
  }
  EXPECT_TRUE(progress_.TakeChunk({.node = 0, .chunk = 0}));
  EXPECT_TRUE(progress_.TakeEnd(0));
  for (const int32_t node : {0, 1}) {
    const uint64_t checksum = Complete(node, 900);
    const std::optional<DeviceReport> report = progress_.TakeSettledDevice();
    ASSERT_TRUE(report.has_value());
    EXPECT_OK(report->status);
    EXPECT_EQ(report->bytes, kChunks * Plan::kLeafBytes);
    EXPECT_EQ(report->digest, DigestOf(checksum));
  }
  EXPECT_TRUE(progress_.all_nodes_settled());
  EXPECT_TRUE(progress_.all_devices_taken());
}

TEST_F(RelayProgressTest, WithChecksumsOffADeviceHasNoDigest) {
  RelayProgress unchecked(*part_, /*checksums=*/false, [](int32_t /*node*/) {});
  for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
    EXPECT_FALSE(unchecked.settled(0));
    unchecked.OnChunkInPlace({.node = 0, .chunk = chunk});
  }
  EXPECT_TRUE(unchecked.settled(0));
  unchecked.OnItemDone(1, 0);
  const std::optional<DeviceReport> report = unchecked.TakeSettledDevice();
  ASSERT_TRUE(report.has_value());
  EXPECT_OK(report->status);
  EXPECT_EQ(report->digest, Digest());
}

std::shared_ptr<const PreparedPart> WholePart(const Plan& plan) {
  auto parts = CutParts(plan, {plan.tensors().devices()});
  CHECK_OK(parts);
  auto part = PreparedPart::Create(std::make_shared<const WorkerPart>(parts->front()));
  CHECK_OK(part);
  return *std::move(part);
}

// Halves of a tensor that a.0 and a.1 give each other.
class GatheredTensorTest : public testing::Test {
 protected:
  // By relay: the one that receives it, then its root.
  enum Node : int32_t { kAt1, kRootAt0, kAt0, kRootAt1 };

  const std::shared_ptr<const PreparedPart> part_ = WholePart(
      ChainPlan(TensorOf("[8]: x=2 on a.0-1 [x] -> x=2 on a.0-1 [-]"), {"a.0 > a.1", "a.1 > a.0"},
                {.copies = {{.slice_class = 0, .device = 0}, {.slice_class = 1, .device = 1}}}));
  std::vector<int32_t> told_;
  RelayProgress progress_{*part_, /*checksums=*/true,
                          [this](int32_t node) { told_.push_back(node); }};
};

TEST_F(GatheredTensorTest, ASourceThatComesLetsItsRootsGoOn) {
  ASSERT_TRUE(part_->nodes()[kRootAt0].root && part_->nodes()[kRootAt1].root);
  progress_.AwaitSource(0);
  EXPECT_FALSE(progress_.CanSend({.node = kRootAt0}, 0));
  EXPECT_TRUE(progress_.CanSend({.node = kRootAt1}, 0));
  progress_.OnSourceReady(0);
  EXPECT_THAT(told_, ElementsAre(kRootAt0));
  EXPECT_TRUE(progress_.CanSend({.node = kRootAt0}, 0));
  progress_.OnSourceReady(0);
  progress_.OnSourceReady(1);
  EXPECT_THAT(told_, SizeIs(1)) << "neither was awaited";
}

TEST_F(GatheredTensorTest, ARootIsHashedOnceAndHasItsChecksumThen) {
  EXPECT_FALSE(progress_.WantsRootHash({.node = kAt1}));
  EXPECT_TRUE(progress_.WantsRootHash({.node = kRootAt0}));
  EXPECT_EQ(progress_.RootChecksum(kRootAt0), std::nullopt);
  progress_.LeafHashes({.node = kRootAt0})[0] = 42;
  progress_.OnRootHashed({.node = kRootAt0});
  EXPECT_FALSE(progress_.WantsRootHash({.node = kRootAt0}));
  EXPECT_EQ(progress_.RootChecksum(kRootAt0), ChecksumOfLeaves(std::vector<uint64_t>{42}));
  RelayProgress unchecked(*part_, /*checksums=*/false, [](int32_t /*node*/) {});
  EXPECT_FALSE(unchecked.WantsRootHash({.node = kRootAt0}));
}

TEST_F(GatheredTensorTest, ARootDoesNotFail) {
  progress_.FailNode(kRootAt0, absl::CancelledError("enough"));
  EXPECT_OK(progress_.failure(kRootAt0));
  EXPECT_EQ(progress_.relays_failed(), 0);
  EXPECT_FALSE(progress_.device_settled(0));
}

TEST_F(GatheredTensorTest, ADigestIsOfWhatADeviceReceived) {
  progress_.LeafHashes({.node = kRootAt0})[0] = 42;
  progress_.OnRootHashed({.node = kRootAt0});
  ASSERT_TRUE(progress_.RootChecksum(kRootAt0).has_value());
  progress_.LeafHashes({.node = kAt0})[0] = 43;
  const uint64_t checksum = ChecksumOfLeaves(std::vector<uint64_t>{43});
  progress_.OnRootChecksum(kAt0, checksum);
  progress_.OnChunkInPlace({.node = kAt0});
  EXPECT_EQ(progress_.TakeSettledDevice(), std::nullopt) << "its own half is not copied";
  progress_.OnItemDone(0, 16);
  const std::optional<DeviceReport> report = progress_.TakeSettledDevice();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->device, 0);
  EXPECT_EQ(report->bytes, 32);
  EXPECT_EQ(report->digest, Digest::Of(std::as_bytes(std::span(&checksum, 1))));
}

TEST(RelayProgress, ADeviceThatExpectsNothingIsCompleteFromTheBeginning) {
  const auto part = WholePart(ChainPlan(
      TensorOf("[1]: x=2 on a.1,a.0 [x] chunk -> x=2 on a.0-1 [x] chunk"), {"a.1 > a.0"}));
  RelayProgress progress(*part, /*checksums=*/true, [](int32_t /*node*/) {});
  EXPECT_EQ(progress.TakeSettledDevice(), std::nullopt);
  progress.Begin();
  const std::optional<DeviceReport> report = progress.TakeSettledDevice();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->device, part->part().tensors().FindDevice({"a", 1}));
  EXPECT_EQ(report->bytes, 0);
  EXPECT_EQ(progress.TakeSettledDevice(), std::nullopt);
}

}  // namespace
}  // namespace crossmesh
