#include "worker/executor/prepared_part.h"

#include "common/base/check.h"
#include "common/mesh/data_type.h"
#include "common/mesh/device.h"
#include "common/plan/packed_segments.h"
#include "common/plan/testing/chain_plan.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/bare_task.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr DataType kU8 = DataType::kU8;

// A tensor of so many bytes from a.0 by b.0 to b.1: the part of the worker of b.
std::shared_ptr<const WorkerPart> PartOf(int64_t bytes) {
  const Plan plan =
      ChainPlan(TensorOf(absl::StrCat("[", bytes / 4, "]: x=1 on a.0 [-] -> x=2 on b.0-1 [-]")),
                {"a.0 > b.0 > b.1"}, {.chunk_bytes = Plan::kLeafBytes});
  auto parts = CutParts(plan, {{{"a", 0}}, {{"b", 0}, {"b", 1}}});
  CHECK_OK(parts);
  return std::make_shared<const WorkerPart>(std::move((*parts)[1]));
}

// The part of the worker of host a, or that of b.
std::shared_ptr<const PreparedPart> Prepared(const Plan& plan, int worker) {
  std::vector<std::vector<DeviceId>> devices(2);
  for (const DeviceId& device : plan.tensors().devices()) {
    devices[device.host == "a" ? 0 : 1].push_back(device);
  }
  auto parts = CutParts(plan, devices);
  CHECK_OK(parts);
  auto part = PreparedPart::Create(std::make_shared<const WorkerPart>((*parts)[worker]));
  CHECK_OK(part);
  return *std::move(part);
}

TEST(PreparedPartTest, TheBytesOfAPartAreKnownBeforeTheyAreSpent) {
  const auto part = PartOf(int64_t{1} << 30);
  ASSERT_OK_AND_ASSIGN(const auto prepared, PreparedPart::Create(part));
  EXPECT_EQ(prepared->chunks(), 2 * (1 << 14));
  const int64_t spent = prepared->chunks() / 2 * 16 + prepared->leaves() * 8;
  EXPECT_GT(PreparedPart::BytesFor(*part), spent);
  EXPECT_LT(PreparedPart::BytesFor(*part), 4 * spent);
  // Each run has hashes of its own.
  EXPECT_GT(PreparedPart::BytesFor(*part, 9),
            PreparedPart::BytesFor(*part) + 8 * prepared->leaves() * 8);
  // Without preparing it.
  EXPECT_GT(PreparedPart::BytesFor(*PartOf(int64_t{1} << 42)), int64_t{1} << 31);
}

TEST(PreparedPartTest, ABoundOfASmallPartIsMadeOfWhatItHas) {
  const auto part = PartOf(10 * Plan::kLeafBytes);
  // A relay of ten chunks and as many leaves at its root and at two devices, by two hops, each of a
  // channel of its own.
  constexpr int64_t kChunks = 10, kNodes = 3, kHops = 2;
  // A hop has the numbers of two nodes and its lag besides; a cut an offset and a leaf. A vector
  // that grows has three times what it holds.
  constexpr int64_t kHopBytes = sizeof(WorkerPart::PartHop) + 3 * sizeof(int32_t) +
                                sizeof(PreparedPart::Entry) + sizeof(PreparedPart::Out);
  const int64_t bytes = PreparedPart::BytesFor(*part, 0);
  EXPECT_EQ(bytes,
            3 * (kChunks * 16 + kHops * kHopBytes + kNodes * int64_t{sizeof(PreparedPart::Node)}));
  // Two movers with nine walks over a group of tensors, tiles of a tensor at two devices on both
  // sides, and of every node its state, and eight bytes for each chunk and leaf.
  constexpr int64_t kWalkBytes = sizeof(PackedSegments) + 8;
  EXPECT_EQ(PreparedPart::BytesFor(*part) - bytes, 4096 + 2 * (2048 + 9 * kWalkBytes) + 2 * 2 * 8 +
                                                       kNodes * (128 + (kChunks + kChunks) * 8));
}

TEST(PreparedPartTest, EveryMessageOfAChannelHasItsNumber) {
  const Plan plan = PlanOfRelays(TensorOf("[196618]: x=1 on a.0 [-] -> x=1 on b.0 [-]", kU8),
                                 {{"a.0 > b.0", 3 * Plan::kLeafBytes}, {"a.0 > b.0", 10}});
  for (const int worker : {0, 1}) {
    const auto part = Prepared(plan, worker);
    ASSERT_EQ(part->channels().size(), 1);
    const PreparedPart::Channel& channel = part->channels()[0];
    const std::span<const PreparedPart::Entry> entries = part->entries(channel);
    ASSERT_EQ(entries.size(), 2);
    EXPECT_EQ(entries[0].first_sequence, 1);
    EXPECT_EQ(entries[1].first_sequence, 5);
    EXPECT_EQ(channel.end_sequence, 7);
    for (int32_t i = 0; i < 2; ++i) {
      EXPECT_EQ(entries[i].from_node, worker == 0 ? i : -1);
      EXPECT_EQ(entries[i].to_node, worker == 0 ? -1 : i);
      EXPECT_EQ(entries[i].lag, 0);
    }
    EXPECT_EQ(part->chunks(), 4);
    EXPECT_EQ(part->leaves(), 4);
  }
}

void ExpectChunk(const PreparedPart& part, int64_t chunk, const PreparedPart::Chunk& expected) {
  const PreparedPart::Chunk found = part.ChunkOf(part.nodes()[0], chunk);
  EXPECT_EQ(found.begin, expected.begin) << chunk;
  EXPECT_EQ(found.end, expected.end) << chunk;
  EXPECT_EQ(found.first_leaf, expected.first_leaf) << chunk;
  EXPECT_EQ(found.leaf_count, expected.leaf_count) << chunk;
}

TEST(PreparedPartTest, LeavesEndWithTheirChunk) {
  // Of five leaves and a byte: three chunks of whole pages.
  const Plan plan = PlanOfRelays(TensorOf("[327681]: x=1 on a.0 [-] -> x=1 on b.0 [-]", kU8),
                                 {{"a.0 > b.0"}}, {.chunk_bytes = 2 * Plan::kLeafBytes});
  const auto part = Prepared(plan, 1);
  EXPECT_EQ(part->chunks(), 3);
  EXPECT_EQ(part->leaves(), 6);
  ExpectChunk(*part, 0, {.begin = 0, .end = 110592, .first_leaf = 0, .leaf_count = 2});
  ExpectChunk(*part, 1, {.begin = 110592, .end = 221184, .first_leaf = 2, .leaf_count = 2});
  ExpectChunk(*part, 2, {.begin = 221184, .end = 327681, .first_leaf = 4, .leaf_count = 2});
}

TEST(PreparedPartTest, ARelayHasAsFewChunksAsItsBytesAllow) {
  // A byte more than three chunks.
  const Plan plan =
      PlanOfRelays(TensorOf("[196609]: x=1 on a.0 [-] -> x=1 on b.0 [-]", kU8), {{"a.0 > b.0"}});
  EXPECT_EQ(Prepared(plan, 1)->chunks(), 4);
  // So many whole chunks that one of a byte more each would be fewer.
  ASSERT_OK_AND_ASSIGN(const auto large, PreparedPart::Create(PartOf(65537 * Plan::kLeafBytes)));
  EXPECT_EQ(large->chunks(), 2 * 65537);
}

TEST(PreparedPartTest, AChunkStaysBehindByThePeriodsOfItsHop) {
  Plan::Spec spec =
      PlanOfRelays(TensorOf("[8]: x=1 on a.0 [-] -> x=2 on a.1-2 [-]"), {{"a.0 > a.1 > a.2"}})
          .spec();
  for (const int32_t period : {0, 1, 2, 4}) {
    spec.hops[1].period = period;
    const auto part = Prepared(*Plan::Create(spec), 0);
    // Receivers first.
    const std::vector<PreparedPart::Node>& nodes = part->nodes();
    ASSERT_EQ(nodes.size(), 3);
    for (const int i : {0, 1, 2}) {
      EXPECT_EQ(nodes[i].device, (i + 1) % 3);
      EXPECT_EQ(nodes[i].root, i == 2);
    }
    const PreparedPart::Entry first = part->entries(part->channels()[0])[0];
    EXPECT_EQ(first.from_node, 2);
    EXPECT_EQ(first.to_node, 0);
    EXPECT_EQ(first.lag, 0);
    const PreparedPart::Entry second = part->entries(part->channels()[1])[0];
    EXPECT_EQ(second.from_node, 0);
    EXPECT_EQ(second.to_node, 1);
    EXPECT_EQ(second.lag, period < 2 ? 0 : period - 1) << "one costs the data edge";
  }
}

TEST(PreparedPartTest, ANodeGoesOnThroughItsOwnChannels) {
  const std::vector<PlannedRelay> relays = {{"a.0 > a.1 > a.2", 8}, {"a.0 > a.2 > a.1", 8}};
  const Plan plan = PlanOfRelays(TensorOf("[16]: x=1 on a.0 [-] -> x=2 on a.1-2 [-]", kU8), relays);
  const auto part = Prepared(plan, 0);
  // By node: the receivers of each relay, then its root.
  const std::vector<std::vector<PreparedPart::Out>> expected = {
      {{.channel = 2}}, {}, {{.channel = 0}}, {{.channel = 3}}, {}, {{.channel = 1}}};
  ASSERT_EQ(part->nodes().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(part->outs(part->nodes()[i]), expected[i])) << i;
  }
}

TEST(PreparedPartTest, APartWithoutDevicesLooksOnlyAtWhatTheFirstDeviceHas) {
  const Plan plan = ChainPlan(TensorOf("[6]: x=3 on a.0-2 [x] -> x=2 on b.0-1 [x]"),
                              {"a.0 > b.0", "a.1 > b.0", "a.1 > b.1", "a.2 > b.1"});
  EXPECT_EQ(plan.slicing().classes().size(), 4);
  auto parts = CutParts(plan, {plan.tensors().devices(), {}});
  ASSERT_OK(parts);
  const auto part = std::make_shared<const WorkerPart>(std::move((*parts)[1]));
  ASSERT_OK_AND_ASSIGN(const auto prepared, PreparedPart::Create(part));
  EXPECT_EQ(prepared->slicing().classes().size(), 1);
  EXPECT_TRUE(prepared->nodes().empty());
  EXPECT_TRUE(prepared->destinations().empty());
}

TEST(PreparedPartTest, APartThatLacksBytesOfItsDevicesIsRefused) {
  WorkerPart::Spec spec = PartOf(Plan::kLeafBytes)->spec();
  spec.relays.clear();
  spec.hops.clear();
  ASSERT_OK_AND_ASSIGN(WorkerPart part, WorkerPart::Create(std::move(spec)));
  EXPECT_THAT(PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(part))),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("b.0")));
}

}  // namespace
}  // namespace crossmesh
