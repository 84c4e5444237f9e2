#include "planner/reshard/host_rings.h"

#include "planner/reshard/host_routes.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kBytes = 1000;

// Of each of these hosts, for all others among them.
Demands GatherOf(const std::vector<int32_t>& hosts) {
  Demands demands;
  for (const int32_t holder : hosts) {
    std::vector<int32_t> others;
    for (const int32_t host : hosts) {
      if (host != holder) others.push_back(host);
    }
    demands.demands.push_back(
        {demands.sets.Intern(std::vector<int32_t>{holder}), demands.sets.Intern(others), kBytes});
  }
  return demands;
}

// The first holder of each demand sends to all receivers itself.
SendShares Stars(const Demands& demands, int64_t unit) {
  SendShares shares{.unit = unit};
  for (const Demand& demand : demands.demands) {
    const std::span<const int32_t> receivers = demands.receivers(demand);
    shares.first.push_back(std::ssize(shares.amounts));
    shares.amounts.push_back(absl::int128(unit) * demand.bytes * std::ssize(receivers));
    shares.amounts.insert(shares.amounts.end(),
                          demands.holders(demand).size() - 1 + receivers.size(), 0);
  }
  return shares;
}

HostNetwork EqualHosts(int count) {
  HostNetwork network;
  for (int h = 0; h < count; ++h) network.hosts.push_back(absl::StrCat("h", h));
  network.host_rates = {.out = std::vector<int64_t>(count, 1),
                        .in = std::vector<int64_t>(count, 1)};
  return network;
}

// From which hosts each one hears, and what it sends.
struct Traffic {
  std::map<int32_t, std::set<int32_t>> heard_from;
  std::map<int32_t, int64_t> sent;
};

Traffic TrafficOf(const Demands& demands, const SendShares& shares, int hosts) {
  const HostRoutes routes = RoundShares(demands, shares, EqualHosts(hosts));
  Traffic traffic;
  routes.ForEachPiece(demands, [&](std::span<const HostHop> hops, int64_t bytes) {
    for (const HostHop& hop : hops) {
      traffic.heard_from[hop.to].insert(hop.from);
      traffic.sent[hop.from] += bytes;
    }
  });
  return traffic;
}

TEST(HostRingsTest, EachPortHearsFromOneHostAndNoneSendsMore) {
  for (const std::vector<int32_t>& hosts :
       {std::vector<int32_t>{0, 1, 2, 3}, {0, 1, 2}, {1, 3, 4, 6, 7}}) {
    const Demands demands = GatherOf(hosts);
    SendShares shares = Stars(demands, 7);
    CloseRings(demands, shares);
    const Traffic traffic = TrafficOf(demands, shares, 8);
    for (size_t i = 0; i < hosts.size(); ++i) {
      EXPECT_EQ(traffic.heard_from.at(hosts[(i + 1) % hosts.size()]), std::set<int32_t>{hosts[i]});
      EXPECT_EQ(traffic.sent.at(hosts[i]), kBytes * (std::ssize(hosts) - 1));
    }
  }
}

TEST(HostRingsTest, WhatIsNoGatherOfAllByStarsStaysAsItIs) {
  const auto expect_same = [](const Demands& demands, const SendShares& before) {
    SendShares after = before;
    CloseRings(demands, after);
    EXPECT_EQ(after.amounts, before.amounts);
  };
  Demands one_is_longer = GatherOf({0, 1, 2, 3});
  one_is_longer.demands[2].bytes *= 2;
  expect_same(one_is_longer, Stars(one_is_longer, 1));
  Demands one_is_missing = GatherOf({0, 1, 2, 3});
  one_is_missing.demands.pop_back();
  expect_same(one_is_missing, Stars(one_is_missing, 1));
  // Host 1 is slow: host 0 sends for it.
  const Demands demands = GatherOf({0, 1, 2, 3});
  SendShares uneven = Stars(demands, 1);
  uneven.amounts[uneven.first[1]] = kBytes;
  uneven.amounts[uneven.first[1] + 1] = 2 * kBytes;
  expect_same(demands, uneven);
}

// Whose port the flow needs for other bytes: taken for a ring of first holders, its demand would
// have it send all the same.
TEST(HostRingsTest, AHolderThatSendsNothingIsAskedForNothing) {
  Demands demands = GatherOf({0, 1, 2, 3});
  demands.demands[3].holders = demands.sets.Intern(std::vector<int32_t>{3, 4});
  const SendShares before = Stars(demands, 1);
  SendShares after = before;
  CloseRings(demands, after);
  EXPECT_EQ(after.amounts, before.amounts);
  EXPECT_FALSE(TrafficOf(demands, after, 5).sent.contains(4));
}

}  // namespace
}  // namespace crossmesh
