#include "planner/reshard/published/broadcast.h"

#include "common/testing/status_matchers.h"
#include "planner/reshard/published/broadcast_greedy.h"
#include "planner/reshard/published/broadcast_makespan.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

HostNetwork EqualHosts(int64_t hosts, int64_t rate) {
  HostNetwork network;
  network.hosts.resize(hosts);
  network.fastest_nic = {.out = std::vector<int64_t>(hosts, rate),
                         .in = std::vector<int64_t>(hosts, rate)};
  return network;
}

TEST(BroadcastMakespanTest, TransfersWithoutACommonPortRunSideBySide) {
  const HostNetwork network = EqualHosts(4, 2);
  const std::vector<Broadcast> apart = {{0, 0, {1}, 8}, {1, 2, {3}, 6}};
  EXPECT_EQ(BroadcastMakespan(apart, network), 4);
  const std::vector<Broadcast> same_sender = {{0, 0, {1}, 8}, {1, 0, {3}, 6}};
  EXPECT_EQ(BroadcastMakespan(same_sender, network), 7);
  const std::vector<Broadcast> both_directions = {{0, 0, {1}, 8}, {1, 1, {0}, 6}};
  EXPECT_EQ(BroadcastMakespan(both_directions, network), 4);
}

TEST(BroadcastMakespanTest, AllOfAChainButTheLastForward) {
  const HostNetwork network = EqualHosts(4, 1);
  const std::vector<Broadcast> forwarder_sends = {{0, 0, {1, 2}, 8}, {1, 1, {3}, 6}};
  EXPECT_EQ(BroadcastMakespan(forwarder_sends, network), 14);
  const std::vector<Broadcast> last_sends = {{0, 0, {1, 2}, 8}, {1, 2, {3}, 6}};
  EXPECT_EQ(BroadcastMakespan(last_sends, network), 8);
}

TEST(BroadcastMakespanTest, TheSlowestPortOfAChainSetsItsPace) {
  HostNetwork network = EqualHosts(3, 4);
  network.fastest_nic.in[2] = 1;
  const std::vector<Broadcast> chain = {{0, 0, {1, 2}, 8}};
  EXPECT_EQ(BroadcastMakespan(chain, network), 8);
}

std::vector<OpenBroadcast> Exchange(int slices) {
  std::vector<OpenBroadcast> open;
  for (int i = 0; i < slices; ++i) {
    open.push_back({.broadcast = {.slice = i, .chain = {2 + i % 2}, .bytes = 4 + i % 3},
                    .candidates = {0, 1}});
  }
  return open;
}

TEST(BroadcastGreedyTest, SendsEverySliceOnceFromACandidate) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Broadcast> order, OrderGreedily(Exchange(9), 4, 7));
  ASSERT_EQ(order.size(), 9u);
  std::vector<int64_t> slices;
  for (const Broadcast& b : order) {
    slices.push_back(b.slice);
    EXPECT_TRUE(b.sender == 0 || b.sender == 1);
    EXPECT_GT(b.bytes, 0);
  }
  std::ranges::sort(slices);
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(slices[i], i);
}

TEST(BroadcastGreedyTest, IsReproducibleFromItsSeed) {
  const auto senders_and_slices = [](uint64_t seed) {
    std::vector<std::pair<int64_t, HostRank>> result;
    const absl::StatusOr<std::vector<Broadcast>> order = OrderGreedily(Exchange(20), 4, seed);
    for (const Broadcast& b : *order) {
      result.push_back({b.slice, b.sender});
    }
    return result;
  };
  EXPECT_EQ(senders_and_slices(1), senders_and_slices(1));
  EXPECT_NE(senders_and_slices(1), senders_and_slices(2));
}

TEST(BroadcastGreedyTest, EndsBetweenTwoSetsWhenItIsCancelled) {
  int asked = 0;
  EXPECT_THAT(OrderGreedily(Exchange(20), 4, 1, [&asked] { return ++asked == 150; }),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(asked, 150);
}

TEST(BroadcastGreedyTest, ConsecutiveBroadcastsFillBothReceivers) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Broadcast> order, OrderGreedily(Exchange(20), 4, 3));
  for (size_t i = 0; i + 1 < order.size(); i += 2) {
    EXPECT_NE(order[i].chain, order[i + 1].chain);
    EXPECT_NE(order[i].sender, order[i + 1].sender);
  }
}

}  // namespace
}  // namespace crossmesh
