#include "planner/reshard/published/broadcast_search.h"

#include "common/testing/status_matchers.h"
#include "planner/reshard/published/broadcast_kinds.h"
#include "planner/reshard/published/broadcast_port_times.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

HostNetwork HostsWithRates(std::vector<int64_t> out, std::vector<int64_t> in) {
  HostNetwork network;
  network.hosts.resize(out.size());
  network.fastest_nic = {.out = std::move(out), .in = std::move(in)};
  return network;
}

HostNetwork EqualHosts(int64_t hosts) {
  return HostsWithRates(std::vector<int64_t>(hosts, 1), std::vector<int64_t>(hosts, 1));
}

// Slices of these sizes, each held by two hosts and needed by another one of its own.
std::vector<OpenBroadcast> FromTwoHosts(const std::vector<int64_t>& sizes) {
  std::vector<OpenBroadcast> open;
  for (size_t i = 0; i < sizes.size(); ++i) {
    open.push_back({.broadcast = {.slice = static_cast<int64_t>(i),
                                  .chain = {static_cast<HostRank>(i + 2)},
                                  .bytes = sizes[i]},
                    .candidates = {0, 1}});
  }
  return open;
}

// In their order, from the first candidates.
std::vector<Broadcast> AsTheyCome(const std::vector<OpenBroadcast>& open) {
  std::vector<Broadcast> order;
  for (const OpenBroadcast& b : open) {
    order.push_back(b.broadcast);
    order.back().sender = b.candidates.front();
  }
  return order;
}

void ExpectAnOrderOf(const std::vector<OpenBroadcast>& open, const std::vector<Broadcast>& order) {
  ASSERT_EQ(order.size(), open.size());
  std::vector<bool> seen(open.size());
  for (const Broadcast& b : order) {
    const OpenBroadcast& of = open[b.slice];
    EXPECT_FALSE(seen[b.slice]) << "slice " << b.slice << " twice";
    seen[b.slice] = true;
    EXPECT_EQ(b.bytes, of.broadcast.bytes);
    EXPECT_EQ(b.chain, of.broadcast.chain);
    EXPECT_NE(std::ranges::find(of.candidates, b.sender), of.candidates.end());
  }
}

struct RandomCase {
  HostNetwork network;
  std::vector<OpenBroadcast> open;
};

// Hosts that hold and need, chains of several, few sizes, so that alike slices occur.
RandomCase DrawCase(uint64_t seed, int slices_max) {
  std::mt19937_64 random(seed);
  const auto below = [&random](int64_t end) { return static_cast<int64_t>(random() % end); };
  const int64_t hosts = 3 + below(3);
  const bool equal = below(2) == 0;
  std::vector<int64_t> out, in;
  for (int64_t h = 0; h < hosts; ++h) {
    out.push_back(equal ? 1 : 1 + below(4));
    in.push_back(equal ? 1 : 1 + below(4));
  }
  RandomCase result{.network = HostsWithRates(out, in)};
  const int64_t slices = 1 + below(slices_max);
  for (int64_t i = 0; i < slices; ++i) {
    std::vector<HostRank> shuffled(hosts);
    std::iota(shuffled.begin(), shuffled.end(), 0);
    std::ranges::shuffle(shuffled, random);
    const int64_t candidates = 1 + below(std::min<int64_t>(3, hosts - 1));
    const int64_t chain = 1 + below(hosts - candidates);
    const auto middle = shuffled.begin() + candidates;
    result.open.push_back({.broadcast = {.slice = i,
                                         .chain = {middle, middle + chain},
                                         .bytes = below(2) == 0 ? 6 : 1 + below(30)},
                           .candidates = {shuffled.begin(), middle}});
  }
  return result;
}

// Over all orders and senders.
double LeastMakespan(const RandomCase& c, std::vector<Broadcast>& order, std::vector<bool>& used) {
  if (order.size() == c.open.size()) return BroadcastMakespan(order, c.network);
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < c.open.size(); ++i) {
    if (used[i]) continue;
    used[i] = true;
    order.push_back(c.open[i].broadcast);
    for (const HostRank sender : c.open[i].candidates) {
      order.back().sender = sender;
      least = std::min(least, LeastMakespan(c, order, used));
    }
    order.pop_back();
    used[i] = false;
  }
  return least;
}

double LeastMakespan(const RandomCase& c) {
  std::vector<Broadcast> order;
  std::vector<bool> used(c.open.size());
  return LeastMakespan(c, order, used);
}

TEST(BroadcastSearchTest, FindsTheOptimumThatThePublishedSearchCutsOff) {
  const std::vector<OpenBroadcast> open = FromTwoHosts({3, 27, 19, 12, 23, 30});
  const HostNetwork network = EqualHosts(8);
  ASSERT_OK_AND_ASSIGN(const SearchedOrder found, SearchOrder(open, AsTheyCome(open), network));
  EXPECT_EQ(found.seconds, 57);
  EXPECT_EQ(BroadcastMakespan(found.order, network), 57);
  EXPECT_TRUE(found.complete);
  ExpectAnOrderOf(open, found.order);
}

TEST(BroadcastSearchTest, IsAsGoodAsTheBestOfAllOrdersAndSenders) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RandomCase c = DrawCase(seed, 5);
    ASSERT_OK_AND_ASSIGN(const SearchedOrder found,
                         SearchOrder(c.open, AsTheyCome(c.open), c.network));
    EXPECT_TRUE(found.complete);
    ExpectAnOrderOf(c.open, found.order);
    EXPECT_DOUBLE_EQ(BroadcastMakespan(found.order, c.network), found.seconds);
    EXPECT_NEAR(found.seconds, LeastMakespan(c), found.seconds * 2e-9);
  }
}

TEST(BroadcastSearchTest, TheBoundIsNeverAboveAnOrderThatGoesOn) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RandomCase c = DrawCase(seed, 12);
    const std::vector<BroadcastKind> kinds = GroupByKind(c.open, c.network);
    BroadcastPortTimes ports(kinds, c.network);
    std::mt19937_64 random(seed);
    std::vector<Broadcast> order;
    std::vector<double> bounds = {ports.LowerBound(0)};
    while (ports.placed() < std::ssize(c.open)) {
      const auto kind = static_cast<int64_t>(random() % kinds.size());
      if (ports.left(kind) == 0) continue;
      const KindSender& sender = kinds[kind].senders[random() % kinds[kind].senders.size()];
      ports.Place(kind, sender);
      order.push_back(c.open[kinds[kind].members.front()].broadcast);
      order.back().sender = sender.host;
      bounds.push_back(ports.LowerBound(0));
    }
    const double end = BroadcastMakespan(order, c.network);
    for (const double bound : bounds) EXPECT_LE(bound, end * (1 + 1e-12));
    EXPECT_DOUBLE_EQ(bounds.back(), end);
    while (ports.placed() > 0) {
      EXPECT_EQ(ports.LowerBound(0), bounds[ports.placed()]);
      ports.TakeBack();
    }
    EXPECT_EQ(ports.LowerBound(0), bounds.front());
  }
}

TEST(BroadcastSearchTest, TheBoundDividesWhatOnlySomeHostsCanSend) {
  const std::vector<OpenBroadcast> open = FromTwoHosts({6, 6, 6});
  const HostNetwork network = HostsWithRates({1, 2, 1, 1, 1}, {4, 4, 4, 4, 4});
  const std::vector<BroadcastKind> kinds = GroupByKind(open, network);
  BroadcastPortTimes ports(kinds, network);
  EXPECT_DOUBLE_EQ(ports.LowerBound(0), 6);  // 18 bytes at 1 + 2 bytes per second
  ports.Place(0, kinds[0].senders[0]);
  EXPECT_DOUBLE_EQ(ports.LowerBound(0), 6);  // host 0 is done at 6, and so is host 1
  ports.Place(1, kinds[1].senders[0]);
  EXPECT_DOUBLE_EQ(ports.LowerBound(0), 12);
}

TEST(BroadcastSearchTest, AlikeSlicesAndSendersAreOneKind) {
  std::vector<OpenBroadcast> open = FromTwoHosts({5, 5, 5, 7});
  open[1].broadcast.chain = open[0].broadcast.chain;
  open[1].candidates = {1, 0};
  const std::vector<BroadcastKind> kinds = GroupByKind(open, EqualHosts(6));
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_THAT(kinds[0].members, ElementsAre(0, 1));
  EXPECT_EQ(kinds[0].senders[0].equals, kinds[0].senders[1].equals);
}

TEST(BroadcastSearchTest, AlikeStatesAreLookedAtOnce) {
  // Seven slices from two hosts: 7! x 2^7 = 645,120 orders. No seven go into 3.5 times one, so that
  // the search ends only when it has seen them all.
  std::vector<OpenBroadcast> open;
  for (int i = 0; i < 7; ++i) {
    open.push_back(
        {.broadcast = {.slice = i, .chain = {2 + i / 3}, .bytes = 8}, .candidates = {0, 1}});
  }
  ASSERT_OK_AND_ASSIGN(const SearchedOrder found,
                       SearchOrder(open, AsTheyCome(open), EqualHosts(5)));
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.seconds, 32);
  EXPECT_LT(found.nodes, 1000);
}

// Two hosts hold and eight need: a partition of numbers, with many orders nearly as good as the
// best.
std::vector<OpenBroadcast> ManyNearlyEqual(int slices) {
  std::vector<OpenBroadcast> open;
  for (int i = 0; i < slices; ++i) {
    open.push_back({.broadcast = {.slice = i,
                                  .chain = {2 + i % 3, 5 + i % 5},
                                  .bytes = 1'000'003 + 7919 * (i % 97) * (i % 89)},
                    .candidates = {0, 1}});
  }
  return open;
}

TEST(BroadcastSearchTest, EndsAtItsLimitWithTheBestOrderFound) {
  const std::vector<OpenBroadcast> open = ManyNearlyEqual(40);
  const std::vector<Broadcast> incumbent = AsTheyCome(open);
  const HostNetwork network = EqualHosts(10);
  ASSERT_OK_AND_ASSIGN(const SearchedOrder none,
                       SearchOrder(open, incumbent, network, {.nodes_max = 40}));
  EXPECT_FALSE(none.complete);
  EXPECT_LE(none.nodes, 40 + 80);
  EXPECT_EQ(none.seconds, BroadcastMakespan(incumbent, network));
  ASSERT_OK_AND_ASSIGN(const SearchedOrder some,
                       SearchOrder(open, incumbent, network, {.nodes_max = 4000}));
  EXPECT_FALSE(some.complete);
  EXPECT_LE(some.nodes, 4000 + 80);
  EXPECT_LT(some.seconds, none.seconds);
  ExpectAnOrderOf(open, some.order);
  EXPECT_EQ(some.ToString(), absl::StrCat("not complete: ", some.nodes, " orders looked at"));
}

TEST(BroadcastSearchTest, IsReproducible) {
  const std::vector<OpenBroadcast> open = ManyNearlyEqual(40);
  const auto slices_and_senders = [&open] {
    std::vector<std::pair<int64_t, HostRank>> result;
    const absl::StatusOr<SearchedOrder> found =
        SearchOrder(open, AsTheyCome(open), EqualHosts(10), {.nodes_max = 4000});
    for (const Broadcast& b : found->order) result.push_back({b.slice, b.sender});
    return result;
  };
  EXPECT_EQ(slices_and_senders(), slices_and_senders());
}

TEST(BroadcastSearchTest, ThousandsOfSlicesEndAtTheLimit) {
  const std::vector<OpenBroadcast> open = ManyNearlyEqual(4000);
  const std::vector<Broadcast> incumbent = AsTheyCome(open);
  const HostNetwork network = EqualHosts(10);
  ASSERT_OK_AND_ASSIGN(const SearchedOrder found, SearchOrder(open, incumbent, network));
  EXPECT_FALSE(found.complete);
  EXPECT_LE(found.nodes, kSearchNodesMax + 2 * 4000);
  EXPECT_LE(found.seconds, BroadcastMakespan(incumbent, network));
  ExpectAnOrderOf(open, found.order);
}

TEST(BroadcastSearchTest, EndsWhenItIsCancelled) {
  const std::vector<OpenBroadcast> open = ManyNearlyEqual(40);
  int asked = 0;
  EXPECT_THAT(SearchOrder(open, AsTheyCome(open), EqualHosts(10),
                          {.cancelled = [&asked] { return ++asked == 150; }}),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(asked, 150);
}

TEST(BroadcastSearchTest, NothingToSendIsAnOrder) {
  ASSERT_OK_AND_ASSIGN(const SearchedOrder found, SearchOrder({}, {}, EqualHosts(2)));
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.seconds, 0);
}

}  // namespace
}  // namespace crossmesh
