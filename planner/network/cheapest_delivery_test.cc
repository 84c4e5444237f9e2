#include "planner/network/cheapest_delivery.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;

HostNetwork NetworkOf(std::vector<int32_t> rack_of_host, size_t racks) {
  HostNetwork network;
  network.hosts.resize(rack_of_host.size());
  network.racks.resize(racks);
  network.rack_of_host = std::move(rack_of_host);
  return network;
}

Demands OneDemand(std::vector<int32_t> holders, std::vector<int32_t> receivers) {
  Demands demands;
  demands.demands.push_back({demands.sets.Intern(holders), demands.sets.Intern(receivers), 1});
  return demands;
}

double PriceOfHop(HostRank from, HostRank to, const HostNetwork& network,
                  const PortPrices& prices) {
  const double hosts = prices.host_out[from] + prices.host_in[to];
  if (!network.CrossesRacks(from, to)) return hosts;
  return hosts + prices.rack_up[network.rack_of_host[from]] +
         prices.rack_down[network.rack_of_host[to]];
}

// The least price by a dynamic programme over the sets of hosts that have the byte.
double LeastPrice(const Demands& demands, const HostNetwork& network, const PortPrices& prices) {
  const std::span<const int32_t> receivers = demands.receivers(demands.demands[0]);
  std::vector<double> price(size_t{1} << receivers.size(), 1e30);
  price[0] = 0;
  for (size_t served = 0; served < price.size(); ++served) {
    for (size_t next = 0; next < receivers.size(); ++next) {
      if ((served >> next & 1) == 1) continue;
      double hop = 1e30;
      for (const int32_t h : demands.holders(demands.demands[0])) {
        hop = std::min(hop, PriceOfHop(h, receivers[next], network, prices));
      }
      for (size_t i = 0; i < receivers.size(); ++i) {
        if ((served >> i & 1) == 0) continue;
        hop = std::min(hop, PriceOfHop(receivers[i], receivers[next], network, prices));
      }
      double& entry = price[served | size_t{1} << next];
      entry = std::min(entry, price[served] + hop);
    }
  }
  return price.back();
}

TEST(CheapestDeliveryTest, TheCheapestHostOfARackFeedsTheOthers) {
  const HostNetwork network = NetworkOf({0, 1, 1, 1}, 2);
  const Demands demands = OneDemand({0}, {1, 2, 3});
  std::vector<HostHop> hops;
  const double price = DeliverySearch(demands, demands.demands[0], network)
                           .Cheapest({{1, 5, 2, 5}, {0, 0, 0, 7}, {10, 10}, {100, 100}}, hops);
  EXPECT_EQ(price, 1 + 10 + 100 + 2 * 2 + 7);
  EXPECT_THAT(hops, ElementsAre(HostHop{0, 0, 2}, HostHop{0, 2, 1}, HostHop{0, 2, 3}));
}

// Each of two racks would have its byte from the other one, which is cheaper than its own holder.
TEST(CheapestDeliveryTest, OneReceiverHasTheByteFromAHolder) {
  const HostNetwork network = NetworkOf({0, 0, 1, 1}, 2);
  const Demands demands = OneDemand({0, 2}, {1, 3});
  std::vector<HostHop> hops;
  const double price = DeliverySearch(demands, demands.demands[0], network)
                           .Cheapest({{90, 2, 80, 1}, {0, 0, 0, 0}, {3, 3}, {4, 4}}, hops);
  EXPECT_EQ(price, 80 + 1 + 3 + 4);
  EXPECT_THAT(hops, ElementsAre(HostHop{2, 2, 3}, HostHop{2, 3, 1}));
}

TEST(CheapestDeliveryTest, RandomDeliveriesAreSoundAndCheapest) {
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const size_t hosts = 2 + random() % 6, racks = 1 + random() % 4;
    std::vector<int32_t> rack_of_host, holders, receivers;
    for (size_t h = 0; h < hosts; ++h) {
      rack_of_host.push_back(static_cast<int32_t>(random() % racks));
      (random() % 3 == 0 ? holders : receivers).push_back(static_cast<int32_t>(h));
    }
    if (holders.empty() || receivers.empty()) continue;
    const HostNetwork network = NetworkOf(rack_of_host, racks);
    const Demands demands = OneDemand(holders, receivers);
    const auto prices_of = [&random](size_t places) {
      std::vector<double> prices;
      while (prices.size() < places) prices.push_back(random() % 3 == 0 ? 0 : double(random() % 9));
      return prices;
    };
    const PortPrices prices = {prices_of(hosts), prices_of(hosts), prices_of(racks),
                               prices_of(racks)};
    std::vector<HostHop> hops;
    const double price =
        DeliverySearch(demands, demands.demands[0], network).Cheapest(prices, hops);
    EXPECT_EQ(price, LeastPrice(demands, network, prices));
    double paid = 0;
    std::set<std::pair<HostRank, HostRank>> has;  // (root, host)
    std::set<HostRank> reached;
    for (const HostHop& hop : hops) {
      EXPECT_TRUE(hop.from == hop.root || has.contains({hop.root, hop.from}));
      EXPECT_TRUE(std::ranges::binary_search(holders, hop.root));
      EXPECT_TRUE(reached.insert(hop.to).second);
      has.insert({hop.root, hop.to});
      paid += PriceOfHop(hop.from, hop.to, network, prices);
    }
    EXPECT_TRUE(std::ranges::equal(reached, receivers));
    EXPECT_TRUE(std::ranges::is_sorted(hops, {}, &HostHop::root));
    EXPECT_EQ(paid, price);
  }
}

}  // namespace
}  // namespace crossmesh
