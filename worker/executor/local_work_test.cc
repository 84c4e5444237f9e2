#include "worker/executor/local_work.h"

#include "common/testing/status_matchers.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/relay_progress.h"
#include "worker/executor/testing/bare_task.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;

TensorText Bytes(int64_t bytes, const std::string& layouts) {
  return TensorOf(absl::StrCat("[", bytes, "]: ", layouts), DataType::kU8);
}

// So many bytes from a.0 to a.1.
Plan BetweenDevices(int64_t bytes) {
  return PlanOfRelays(Bytes(bytes, "x=1 on a.0 [-] -> x=1 on a.1 [-]"), {{"a.0 > a.1"}});
}

// From the source tiles of a.0, or of each of a.0-1, to its destination tiles: as many bytes each.
Plan WithinDevices(int64_t bytes, int32_t devices) {
  const std::string mesh = absl::StrCat("x=", devices, " on a.0", devices > 1 ? "-1" : "", " [x]");
  Plan::Spec rest{.chunk_bytes = kLeaf};
  for (int32_t i = 0; i < devices; ++i) rest.copies.push_back({.slice_class = i, .device = i});
  return PlanOfRelays(Bytes(bytes * devices, absl::StrCat(mesh, " -> ", mesh)), {},
                      std::move(rest));
}

class LocalWorkTest : public testing::Test {
 protected:
  void Make(Plan plan, const std::string& host = "a", const BareTask::Options& options = {}) {
    work_.reset();
    task_.reset();
    plan_ = std::make_unique<const Plan>(std::move(plan));
    task_ = std::make_unique<BareTask>(*plan_, host, options);
    work_ = std::make_unique<LocalWork>(task_->context, task_->scales);
    task_->on_node = [this](int32_t node) {
      for (const PreparedPart::Out& out : task_->part().outs(task_->part().nodes()[node])) {
        const bool local =
            task_->part().channels()[out.channel].reach == PreparedPart::Reach::kLocal;
        if (local) work_->OnProgress(out);
      }
    };
  }
  int64_t copied() const {
    EXPECT_EQ(task_->shared.counters.copied_bytes, task_->report.copied_bytes);
    return task_->report.copied_bytes;
  }
  RelayProgress& progress() { return task_->progress; }

  std::unique_ptr<const Plan> plan_;
  std::unique_ptr<BareTask> task_;
  std::unique_ptr<LocalWork> work_;
};

TEST_F(LocalWorkTest, AStepEndsWithAMebibyteBetweenDevices) {
  Make(BetweenDevices(kMebi));
  EXPECT_TRUE(work_->Step());
  EXPECT_EQ(copied(), kMebi);
  EXPECT_FALSE(progress().all_nodes_settled()) << "its checksum is still to come";
  EXPECT_FALSE(work_->Step());
  EXPECT_TRUE(progress().all_nodes_settled());
  EXPECT_TRUE(task_->context.chunk_begun);
  EXPECT_OK(task_->memory.CheckDestination(1));
}

TEST_F(LocalWorkTest, WithAByteLessThereIsNothingMoreToDo) {
  Make(BetweenDevices(kMebi - 1));
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), kMebi - 1);
  EXPECT_TRUE(progress().all_nodes_settled());
  EXPECT_OK(task_->memory.CheckDestination(1));
}

TEST_F(LocalWorkTest, AStepEndsWithAMebibyteWithinADevice) {
  Make(WithinDevices(kMebi, 1));
  EXPECT_FALSE(work_->finished());
  EXPECT_TRUE(work_->Step());
  EXPECT_EQ(copied(), kMebi);
  EXPECT_TRUE(work_->finished());
  EXPECT_FALSE(work_->Step());
  EXPECT_OK(task_->memory.CheckDestination(0));
  const auto report = progress().TakeSettledDevice();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->bytes, kMebi);
}

TEST_F(LocalWorkTest, AStepEndsWith64Actions) {
  // Each has a chunk, and its end.
  const std::vector<PlannedRelay> relays(32, PlannedRelay{.chain = "a.0 > a.1", .bytes = 16});
  Make(PlanOfRelays(Bytes(32 * 16, "x=1 on a.0 [-] -> x=1 on a.1 [-]"), relays));
  EXPECT_TRUE(work_->Step());
  EXPECT_TRUE(progress().all_nodes_settled());
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), 32 * 16);
}

TEST_F(LocalWorkTest, OneThatHasNothingToDoHoldsUpNoOther) {
  Make(PlanOfRelays(Bytes(8 * kLeaf, "x=2 on a.0-1 [x] -> x=2 on a.2-3 [x]"),
                    {{"a.0 > a.2"}, {.chain = "a.1 > a.3", .slice_class = 1}}));
  progress().AwaitSource(0);
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), 4 * kLeaf);
  EXPECT_OK(task_->memory.CheckDestination(3));
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), 4 * kLeaf);
  progress().OnSourceReady(0);
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), 8 * kLeaf);
  EXPECT_OK(task_->memory.CheckDestination(2));
}

TEST_F(LocalWorkTest, ACopyThatIsDoneHoldsUpNoOther) {
  Make(WithinDevices(4 * kLeaf, 2));
  progress().FailDevice(0, absl::CancelledError("enough"));
  EXPECT_FALSE(work_->Step());
  EXPECT_TRUE(work_->finished());
  EXPECT_EQ(copied(), 4 * kLeaf);
}

TEST_F(LocalWorkTest, ACopyWaitsForItsSource) {
  Make(WithinDevices(4 * kLeaf, 2));
  progress().AwaitSource(0);
  EXPECT_FALSE(work_->Step());
  EXPECT_FALSE(work_->finished());
  EXPECT_EQ(copied(), 4 * kLeaf);
  EXPECT_OK(task_->memory.CheckDestination(1));
  progress().OnSourceReady(0);
  EXPECT_FALSE(work_->Step());
  EXPECT_TRUE(work_->finished());
  EXPECT_EQ(copied(), 8 * kLeaf);
  EXPECT_OK(task_->memory.CheckDestination(0));
}

// A mebibyte but for a byte goes in the same step, which would end there if waiting counted.
TEST_F(LocalWorkTest, WaitingForASourceMovesNothing) {
  Make(PlanOfRelays(Bytes(2 * (kMebi - 1), "x=2 on a.0-1 [x] -> x=2 on a.2-3 [x]"),
                    {{"a.0 > a.2"}, {.chain = "a.1 > a.3", .slice_class = 1}}));
  progress().AwaitSource(0);
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), kMebi - 1);
}

TEST_F(LocalWorkTest, OfARelayThatHasFailedNothingIsCopied) {
  Make(PlanOfRelays(Bytes(2 * (kMebi - 1), "x=2 on a.0-1 [x] -> x=2 on a.2-3 [x]"),
                    {{"a.0 > a.2"}, {.chain = "a.1 > a.3", .slice_class = 1}}));
  progress().FailNode(task_->EntryOf(0).to_node, absl::CancelledError("enough"));
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), kMebi - 1);
  EXPECT_FALSE(work_->Step());
  EXPECT_OK(task_->memory.CheckDestination(3));
}

TEST_F(LocalWorkTest, OfADeviceThatHasFailedNothingIsCopied) {
  Make(WithinDevices(kMebi - 1, 2));
  progress().FailDevice(0, absl::CancelledError("enough"));
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), kMebi - 1);
  EXPECT_TRUE(work_->finished());
  EXPECT_OK(task_->memory.CheckDestination(1));
}

// Relays of a leaf, of a mebibyte but for a byte and a leaf, from a.0 by b.0 to b.1, at the worker
// of b.
class ForwardingTest : public LocalWorkTest {
 protected:
  ForwardingTest() {
    const std::string chain = "a.0 > b.0 > b.1";
    Make(PlanOfRelays(Bytes(kMebi - 1, "x=1 on a.0 [-] -> x=2 on b.0-1 [-]"),
                      {{chain, kLeaf}, {chain}}),
         "b");
    channel_ = task_->part().channels()[0].reach == PreparedPart::Reach::kLocal ? 0 : 1;
  }
  int32_t from(int32_t entry) const { return task_->EntryOf(channel_, entry).from_node; }
  int32_t to(int32_t entry) const { return task_->EntryOf(channel_, entry).to_node; }
  // All chunks of an entry have come to b.0.
  void Receive(int32_t entry) {
    const PreparedPart::Node& node = task_->part().nodes()[from(entry)];
    const std::byte* const tile = task_->spec.destinations.at(1).tensor[0];
    for (int32_t chunk = 0; chunk < node.chunks; ++chunk) {
      const PreparedPart::Chunk range = task_->part().ChunkOf(node, chunk);
      const NodeChunk at{.node = from(entry), .chunk = chunk};
      HashLeaves(std::span(tile + range.begin, range.bytes()), progress().LeafHashes(at));
      for (const uint64_t hash : progress().LeafHashes(at)) hashes_.push_back(hash);
      progress().OnChunkInPlace(at);
    }
  }

  int32_t channel_ = 0;
  std::vector<uint64_t> hashes_;  // of the leaves that came
};

TEST_F(ForwardingTest, WhatHasComeGoesOnAndTheWorkRestsUntilItsChecksumIsHere) {
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), 0);
  Receive(0);
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), kLeaf);
  EXPECT_FALSE(progress().settled(to(0)));
  progress().OnRootChecksum(from(0), ChecksumOfLeaves(hashes_));
  EXPECT_FALSE(work_->Step());
  EXPECT_TRUE(progress().settled(to(0)));
  EXPECT_OK(progress().failure(to(0)));
}

TEST_F(ForwardingTest, WaitingForAChecksumMovesNothing) {
  Receive(0);
  Receive(1);
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(copied(), kMebi - 1);
}

TEST_F(ForwardingTest, WhatFailedOnItsWayFailsWhereItWasToGo) {
  const absl::Status why = absl::UnavailableError("worker a is lost");
  progress().FailNode(from(1), why);
  EXPECT_FALSE(work_->Step());
  EXPECT_EQ(progress().failure(to(1)), why);
  EXPECT_FALSE(progress().settled(to(0)));
  EXPECT_EQ(copied(), 0);
}

TEST_F(LocalWorkTest, WhatIsRewoundIsDoneAgain) {
  for (const bool within : {false, true}) {
    Make(within ? WithinDevices(2 * kLeaf, 1) : BetweenDevices(2 * kLeaf));
    const DeviceRank device = within ? 0 : 1;
    for (int instance = 0; instance < 2; ++instance) {
      EXPECT_FALSE(work_->Step());
      EXPECT_EQ(copied(), (instance + 1) * 2 * kLeaf);
      EXPECT_TRUE(work_->finished());
      EXPECT_TRUE(progress().device_settled(device));
      progress().Rewind();
      work_->Rewind();
      EXPECT_EQ(work_->finished(), !within);
    }
  }
}

TEST_F(LocalWorkTest, AStepComputesScalesOfAMebibyte) {
  // A row of blocks has a quarter of a mebibyte of source, and there are five.
  Make(PlanOfRelays(TensorOf("[640, 1024]: x=1 on a.0 [-, -] -> x=1 on b.0 [-, -]", DataType::kBF16,
                             DataType::kF8E4M3),
                    {{"a.0 > b.0"}, {.chain = "a.0 > b.0", .slice_class = 1}}));
  progress().AwaitSource(0);
  EXPECT_FALSE(work_->Step());
  task_->scales.OnSourceHere(0);
  EXPECT_TRUE(work_->Step());
  EXPECT_FALSE(task_->scales.idle());
  EXPECT_FALSE(progress().is_source_ready(0));
  EXPECT_TRUE(work_->Step());
  EXPECT_TRUE(task_->scales.idle());
  EXPECT_TRUE(progress().is_source_ready(0));
  EXPECT_FALSE(work_->Step());
}

}  // namespace
}  // namespace crossmesh
