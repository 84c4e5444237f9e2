#include "tests/benchmark/rack_program.h"

#include "planner/network/bound.h"

#include <random>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr double kTolerance = 1e-6;

struct RackRates {
  int64_t up;
  int64_t down;
};

// Hosts with these rates in both directions, host h in rack rack_of_host[h].
HostNetwork NetworkOf(std::vector<int64_t> rates, std::vector<int32_t> rack_of_host,
                      const std::vector<RackRates>& racks) {
  HostNetwork network;
  for (size_t h = 0; h < rates.size(); ++h) network.hosts.push_back(absl::StrCat("h", h));
  network.host_rates = {.out = rates, .in = rates};
  network.rack_of_host = std::move(rack_of_host);
  for (const auto& [up, down] : racks) {
    network.racks.push_back(absl::StrCat("r", network.racks.size()));
    network.rack_rates.out.push_back(up);
    network.rack_rates.in.push_back(down);
  }
  return network;
}

void Add(Demands& demands, std::vector<int32_t> holders, std::vector<int32_t> receivers,
         int64_t bytes) {
  demands.demands.push_back({demands.sets.Intern(holders), demands.sets.Intern(receivers), bytes});
}

TEST(RackProgramTest, NothingToSendTakesNoTime) {
  EXPECT_EQ(RackProgramSeconds(Demands(), NetworkOf({1}, {0}, {{1, 1}})), 0);
}

TEST(RackProgramTest, ABroadcastCrossesANarrowUplinkOnce) {
  Demands demands;
  Add(demands, {0}, {1, 2, 3}, 64);
  EXPECT_NEAR(RackProgramSeconds(demands, NetworkOf({2, 2, 2, 2}, {0, 0, 1, 1}, {{1, 1}, {1, 1}})),
              64, 64 * kTolerance);
}

TEST(RackProgramTest, ReplicasInEveryRackNeedNoUplink) {
  Demands demands;
  Add(demands, {0, 2}, {1, 3}, 64);
  EXPECT_NEAR(RackProgramSeconds(demands, NetworkOf({2, 2, 2, 2}, {0, 0, 1, 1}, {{1, 1}, {1, 1}})),
              32, 32 * kTolerance);
}

TEST(RackProgramTest, ARackPassesOnWhatANarrowUplinkGaveIt) {
  Demands demands;
  Add(demands, {0}, {1, 2, 3, 4}, 80);
  EXPECT_NEAR(RackProgramSeconds(
                  demands, NetworkOf({4, 4, 4, 4, 4}, {0, 1, 1, 2, 2}, {{1, 1}, {2, 2}, {2, 2}})),
              80, 80 * kTolerance);
}

// Neither hosts nor racks by themselves say so: the rack's own holder sends at 1, and the other
// one, which could send at 4, is behind an uplink of 1.
TEST(RackProgramTest, ASlowHolderAndANarrowUplinkShareTheWork) {
  Demands demands;
  Add(demands, {0, 1}, {2}, 12);
  EXPECT_NEAR(RackProgramSeconds(demands, NetworkOf({1, 4, 4}, {0, 1, 0}, {{2, 2}, {1, 1}})), 6,
              6 * kTolerance);
}

TEST(RackProgramTest, AnAllGatherOverTwoRacksIsBoundByItsReceivers) {
  Demands demands;
  Add(demands, {0}, {1, 2, 3}, 16);
  Add(demands, {1}, {0, 2, 3}, 16);
  Add(demands, {2}, {0, 1, 3}, 16);
  Add(demands, {3}, {0, 1, 2}, 16);
  EXPECT_NEAR(RackProgramSeconds(demands, NetworkOf({1, 1, 1, 1}, {0, 0, 1, 1}, {{1, 1}, {1, 1}})),
              48, 48 * kTolerance);
}

// The first copy must come from the holder, whose port is slow; receivers cannot help.
TEST(RackProgramTest, TheFirstCopyComesFromAHolder) {
  Demands demands;
  Add(demands, {0}, {1, 2}, 8);
  EXPECT_NEAR(RackProgramSeconds(demands, NetworkOf({1, 8, 8}, {0, 0, 1}, {{8, 8}, {8, 8}})), 8,
              8 * kTolerance);
}

TEST(RackProgramTest, UnlimitedRacksLimitNothing) {
  Demands demands;
  Add(demands, {0}, {1, 2}, 12);
  constexpr int64_t kUnlimited = PortRates::kUnlimited;
  EXPECT_NEAR(RackProgramSeconds(demands, NetworkOf({4, 4, 4}, {0, 1, 2},
                                                    {{kUnlimited, kUnlimited}, {3, 3}, {3, 3}})),
              4, 4 * kTolerance);
}

// Two programmes that have nothing in common but what they say: this one over what hosts send, the
// planner's over deliveries.
TEST(RackProgramTest, ThePlannersBoundIsTheSame) {
  int compared = 0;
  for (uint64_t seed = 0; compared < 1000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const size_t hosts = 2 + random() % 6, racks = 1 + random() % 4;
    std::vector<int64_t> rates;
    std::vector<int32_t> rack_of_host;
    std::vector<RackRates> rack_rates;
    for (size_t h = 0; h < hosts; ++h) {
      rates.push_back(1 + static_cast<int64_t>(random() % 8));
      rack_of_host.push_back(static_cast<int32_t>(random() % racks));
    }
    for (size_t r = 0; r < racks; ++r) {
      rack_rates.push_back(
          {1 + static_cast<int64_t>(random() % 8), 1 + static_cast<int64_t>(random() % 8)});
    }
    Demands demands;
    for (uint64_t d = 1 + random() % 6; d > 0; --d) {
      std::vector<int32_t> holders, receivers;
      for (size_t h = 0; h < hosts; ++h) {
        const uint64_t role = random() % 3;
        if (role < 2) (role == 0 ? holders : receivers).push_back(static_cast<int32_t>(h));
      }
      if (holders.empty() || receivers.empty()) continue;
      Add(demands, holders, receivers, 1 + static_cast<int64_t>(random() % 1000));
    }
    if (demands.demands.empty()) continue;
    const HostNetwork network = NetworkOf(rates, rack_of_host, rack_rates);
    ExactBound bound = ComputeBound(demands, network);
    bound.mix = MixDeliveries(demands, network, bound.terms());
    EXPECT_NEAR(bound.seconds().ToDouble() / RackProgramSeconds(demands, network), 1, 1.1e-4);
    ++compared;
  }
}

}  // namespace
}  // namespace crossmesh
