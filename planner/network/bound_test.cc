#include "planner/network/bound.h"

#include <algorithm>
#include <random>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Hosts with these rates, in no racks.
HostNetwork NetworkOf(std::vector<int64_t> out, std::vector<int64_t> in) {
  HostNetwork network;
  for (size_t h = 0; h < out.size(); ++h) network.hosts.push_back(absl::StrCat("h", h));
  network.host_rates = {.out = std::move(out), .in = std::move(in)};
  return network;
}

void Add(Demands& demands, std::vector<int32_t> holders, std::vector<int32_t> receivers,
         int64_t bytes) {
  demands.demands.push_back({demands.sets.Intern(holders), demands.sets.Intern(receivers), bytes});
}

// max over host sets X of what X must send / rate out of X.
Fraction UplinkByEnumeration(const Demands& demands, const HostNetwork& network) {
  Fraction most;
  const int hosts = static_cast<int>(network.hosts.size());
  for (int x = 1; x < 1 << hosts; ++x) {
    const auto inside = [x](std::span<const int32_t> places) {
      return std::ranges::all_of(places, [x](int32_t p) { return (x >> p & 1) == 1; });
    };
    int64_t bytes = 0, rate = 0;
    for (int h = 0; h < hosts; ++h) rate += (x >> h & 1) == 1 ? network.host_rates.out[h] : 0;
    for (const Demand& d : demands.demands) {
      if (!inside(demands.holders(d))) continue;
      const int64_t others = static_cast<int64_t>(demands.receivers(d).size()) - 1;
      bytes += d.bytes * (1 + (inside(demands.receivers(d)) ? others : 0));
    }
    most = std::max(most, Fraction(bytes, rate));
  }
  return most;
}

struct RandomCase {
  Demands demands;
  HostNetwork network;
};

RandomCase RandomDemands(uint64_t seed) {
  std::mt19937_64 random(seed);
  const int hosts = 2 + static_cast<int>(random() % 5);
  std::vector<int64_t> out, in;
  for (int h = 0; h < hosts; ++h) {
    out.push_back(1 + static_cast<int64_t>(random() % 4));
    in.push_back(1 + static_cast<int64_t>(random() % 4));
  }
  RandomCase result{.network = NetworkOf(out, in)};
  for (int d = 1 + static_cast<int>(random() % 6); d > 0; --d) {
    std::vector<int32_t> holders, receivers;
    for (int h = 0; h < hosts; ++h) {
      const uint64_t role = random() % 3;
      if (role == 0) holders.push_back(h);
      if (role == 1) receivers.push_back(h);
    }
    if (holders.empty() || receivers.empty()) continue;
    Add(result.demands, holders, receivers, 1 + static_cast<int64_t>(random() % 50));
  }
  return result;
}

TEST(BoundTest, NothingToSendTakesNoTime) {
  const HostNetwork network = NetworkOf({1, 1}, {1, 1});
  const ExactBound bound = ComputeBound(Demands(), network);
  EXPECT_EQ(bound.seconds(), Fraction());
  EXPECT_THAT(ToBound(bound, network).proof, IsEmpty());
}

TEST(BoundTest, FullestInPortIsTheProof) {
  const HostNetwork network = NetworkOf({9, 9, 9}, {1, 4, 1});
  Demands demands;
  Add(demands, {0}, {1}, 8);
  Add(demands, {0}, {2}, 6);
  const ExactBound bound = ComputeBound(demands, network);
  EXPECT_EQ(bound.ingress.seconds, Fraction(6));
  EXPECT_EQ(bound.uplink.seconds, Fraction(14, 9));
  const Bound shown = ToBound(bound, network);
  ASSERT_EQ(shown.proof.size(), 1u);
  EXPECT_EQ(shown.proof[0].port, PortPrice::Port::kHostIn);
  EXPECT_EQ(shown.proof[0].name, "h2");
  EXPECT_EQ(shown.seconds, 6);
}

TEST(BoundTest, SlowReceiversLeaveTheSendingToTheHolder) {
  const HostNetwork network = NetworkOf({4, 1, 1}, {9, 9, 9});
  Demands demands;
  Add(demands, {0}, {1, 2}, 12);
  const ExactBound bound = ComputeBound(demands, network);
  EXPECT_EQ(bound.seconds(), Fraction(4));  // 24 bytes over rates of 4 + 1 + 1
  EXPECT_THAT(bound.uplink.places, ElementsAre(0, 1, 2));
}

TEST(BoundTest, UplinkTermIsThatOfTheWorstSetOfHosts) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RandomCase c = RandomDemands(seed);
    const ExactBound bound = ComputeBound(c.demands, c.network);
    EXPECT_EQ(bound.uplink.seconds, UplinkByEnumeration(c.demands, c.network));
  }
}

TEST(BoundTest, SharesServeEveryReceiverWithinTheBound) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RandomCase c = RandomDemands(seed);
    const Fraction seconds = ComputeBound(c.demands, c.network).seconds();
    const SendShares shares = ComputeSendShares(c.demands, c.network, seconds);
    std::vector<absl::int128> sent(c.network.hosts.size());
    for (size_t d = 0; d < c.demands.demands.size(); ++d) {
      const Demand& demand = c.demands.demands[d];
      const std::span<const int32_t> holders = c.demands.holders(demand);
      const std::span<const int32_t> receivers = c.demands.receivers(demand);
      const absl::int128 size = demand.bytes * shares.unit;
      if (shares.first[d] == SendShares::kSole) {
        sent[holders[0]] += size;
        continue;
      }
      const absl::int128* amount = &shares.amounts[shares.first[d]];
      absl::int128 of_holders = 0, of_all = 0;
      for (size_t i = 0; i < holders.size() + receivers.size(); ++i) {
        const bool is_holder = i < holders.size();
        sent[is_holder ? holders[i] : receivers[i - holders.size()]] += amount[i];
        of_all += amount[i];
        if (is_holder) of_holders += amount[i];
      }
      EXPECT_EQ(of_all, size * static_cast<int64_t>(receivers.size()));
      EXPECT_GE(of_holders, size);
    }
    for (size_t h = 0; h < sent.size(); ++h) {
      EXPECT_LE(sent[h] * seconds.denominator(),
                seconds.numerator() * shares.unit * c.network.host_rates.out[h]);
    }
  }
}

TEST(BoundTest, RacksAddTheirOwnTerms) {
  HostNetwork network = NetworkOf({2, 2, 2, 2}, {2, 2, 2, 2});
  network.racks = {"r0", "r1"};
  network.rack_of_host = {0, 0, 1, 1};
  network.rack_rates = {.out = {1, 1}, .in = {1, 1}};
  Demands demands;
  Add(demands, {0}, {1, 2, 3}, 64);
  const ExactBound bound = ComputeBound(demands, network);
  EXPECT_EQ(bound.ingress.seconds, Fraction(32));
  EXPECT_EQ(bound.rack_ingress.seconds, Fraction(64));
  EXPECT_EQ(bound.rack_uplink.seconds, Fraction(64));
  const Bound shown = ToBound(bound, network);
  ASSERT_EQ(shown.proof.size(), 1u);
  EXPECT_EQ(shown.proof[0].port, PortPrice::Port::kRackDown);
  EXPECT_EQ(shown.proof[0].name, "r1");
}

TEST(BoundTest, UnlimitedRacksNeverDecide) {
  HostNetwork network = NetworkOf({2, 2, 2}, {2, 2, 2});
  network.racks = {"r0", "", ""};
  network.rack_of_host = {0, 1, 2};
  network.rack_rates = {.out = {4, PortRates::kUnlimited, PortRates::kUnlimited},
                        .in = {1, PortRates::kUnlimited, PortRates::kUnlimited}};
  Demands demands;
  Add(demands, {1, 2}, {0}, 8);
  Add(demands, {1}, {2}, 2);
  const ExactBound bound = ComputeBound(demands, network);
  EXPECT_EQ(bound.rack_ingress.seconds, Fraction(8));
  EXPECT_EQ(bound.rack_uplink.seconds, Fraction());
}

TEST(BoundTest, PairsOfOneHolderAndOneReceiverNeedNoFlow) {
  constexpr int32_t kHosts = 300;
  const HostNetwork network =
      NetworkOf(std::vector<int64_t>(2 * kHosts, 1), std::vector<int64_t>(2 * kHosts, 1));
  Demands demands;
  for (int32_t from = 0; from < kHosts; ++from) {
    for (int32_t to = kHosts; to < 2 * kHosts; ++to) Add(demands, {from}, {to}, 3);
  }
  const ExactBound bound = ComputeBound(demands, network);
  EXPECT_EQ(bound.seconds(), Fraction(3 * kHosts));
  EXPECT_EQ(bound.flows, 0);
}

}  // namespace
}  // namespace crossmesh
