#include "planner/reshard/host_routes.h"

#include "common/testing/status_matchers.h"
#include "planner/network/bound.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostNetwork NetworkOf(std::vector<int64_t> rates) {
  HostNetwork network;
  for (size_t h = 0; h < rates.size(); ++h) network.hosts.push_back(absl::StrCat("h", h));
  network.host_rates = {.out = rates, .in = rates};
  return network;
}

Demands OneDemand(std::vector<int32_t> holders, std::vector<int32_t> receivers, int64_t bytes) {
  Demands demands;
  demands.demands.push_back({demands.sets.Intern(holders), demands.sets.Intern(receivers), bytes});
  return demands;
}

SendShares SharesOf(std::vector<absl::int128> amounts) {
  return {.unit = 1, .first = {0}, .amounts = std::move(amounts)};
}

TEST(HostRoutesTest, DegreesOfOneGiveAChain) {
  const HostRoutes routes = RoundShares(OneDemand({0}, {1, 2, 3}, 10), SharesOf({10, 10, 10, 0}),
                                        NetworkOf({1, 1, 1, 1}));
  ASSERT_EQ(routes.pieces.size(), 1u);
  EXPECT_THAT(routes.HopsOf(routes.pieces[0]),
              ElementsAre(HostHop{0, 0, 1}, HostHop{0, 1, 2}, HostHop{0, 2, 3}));
}

TEST(HostRoutesTest, LargerDegreesFanOutNearTheRoot) {
  const HostRoutes routes =
      RoundShares(OneDemand({0}, {1, 2, 3}, 10), SharesOf({10, 0, 20, 0}), NetworkOf({1, 1, 1, 1}));
  EXPECT_THAT(routes.HopsOf(routes.pieces[0]),
              ElementsAre(HostHop{0, 0, 2}, HostHop{0, 2, 1}, HostHop{0, 2, 3}));
}

TEST(HostRoutesTest, FractionalDegreesCutTheGroup) {
  const HostRoutes routes =
      RoundShares(OneDemand({0}, {1, 2, 3}, 10), SharesOf({15, 10, 5, 0}), NetworkOf({1, 1, 1, 1}));
  ASSERT_EQ(routes.pieces.size(), 2u);
  EXPECT_EQ(routes.pieces[0].end, 5);
  EXPECT_THAT(routes.HopsOf(routes.pieces[0]),
              ElementsAre(HostHop{0, 0, 1}, HostHop{0, 0, 2}, HostHop{0, 1, 3}));
  EXPECT_EQ(routes.pieces[1].end, 10);
  EXPECT_THAT(routes.HopsOf(routes.pieces[1]),
              ElementsAre(HostHop{0, 0, 1}, HostHop{0, 1, 2}, HostHop{0, 2, 3}));
}

// Every one of the hosts sends another fraction, so there are as many pieces as hosts.
SendShares FractionsOf(int32_t hosts, int64_t bytes) {
  std::vector<absl::int128> amounts;
  for (int32_t h = 0; h < hosts; ++h) amounts.push_back(bytes / 2 + 1 + h);
  return SharesOf(std::move(amounts));
}

TEST(HostRoutesTest, PiecesOfTooManyHopsAreCountedAndNotMade) {
  const int64_t bytes = int64_t{1} << 40;
  std::vector<int32_t> receivers(4096);
  std::iota(receivers.begin(), receivers.end(), 1);
  EXPECT_THAT(CheckPieces(OneDemand({0}, receivers, bytes), FractionsOf(4097, bytes)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("hops or more")));
  receivers.resize(4094);
  EXPECT_OK(CheckPieces(OneDemand({0}, receivers, bytes), FractionsOf(4095, bytes)));
  // As many degrees, of holders, for one receiver.
  std::vector<int32_t> holders(4096);
  std::iota(holders.begin(), holders.end(), 0);
  EXPECT_THAT(CheckPieces(OneDemand(holders, {4096}, bytes), FractionsOf(4097, bytes)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("hops or more")));
}

TEST(HostRoutesTest, HoldersShareAReceiver) {
  const HostRoutes routes =
      RoundShares(OneDemand({0, 1}, {2}, 12), SharesOf({4, 8, 0}), NetworkOf({1, 2, 9}));
  ASSERT_EQ(routes.pieces.size(), 2u);
  EXPECT_EQ(routes.pieces[0].end, 4);
  EXPECT_THAT(routes.HopsOf(routes.pieces[0]), ElementsAre(HostHop{0, 0, 2}));
  EXPECT_THAT(routes.HopsOf(routes.pieces[1]), ElementsAre(HostHop{1, 1, 2}));
}

TEST(HostRoutesTest, AChainVisitsTheRootsRackFirst) {
  HostNetwork network = NetworkOf({1, 1, 1, 1});
  network.racks = {"r0", "r1"};
  network.rack_of_host = {0, 1, 0, 1};
  const HostRoutes routes =
      RoundShares(OneDemand({3}, {0, 1, 2}, 10), SharesOf({10, 10, 10, 0}), network);
  EXPECT_THAT(routes.HopsOf(routes.pieces[0]),
              ElementsAre(HostHop{3, 3, 1}, HostHop{3, 1, 0}, HostHop{3, 0, 2}));
}

// Every receiver gets every byte once, from a host that has it; each host sends its share but for
// the rounding of pieces to whole bytes, `rounding_bytes` at most.
void ExpectSound(const Demands& demands, const SendShares& shares, const HostRoutes& routes,
                 int64_t d, int64_t rounding_bytes = 1) {
  const Demand& demand = demands.demands[d];
  std::map<HostRank, int64_t> sent;
  int64_t begin = 0;
  for (const Piece& piece : routes.PiecesOf(d)) {
    ASSERT_GT(piece.end, begin);
    std::set<std::pair<HostRank, HostRank>> has;  // (root, host)
    std::set<HostRank> reached;
    for (const HostHop& hop : routes.HopsOf(piece)) {
      EXPECT_TRUE(hop.from == hop.root || has.contains({hop.root, hop.from}));
      EXPECT_TRUE(std::ranges::binary_search(demands.holders(demand), hop.root));
      EXPECT_TRUE(reached.insert(hop.to).second);
      has.insert({hop.root, hop.to});
      sent[hop.from] += piece.end - begin;
    }
    EXPECT_TRUE(std::ranges::equal(reached, demands.receivers(demand)));
    begin = piece.end;
  }
  EXPECT_EQ(begin, demand.bytes);
  const absl::int128* amount = &shares.amounts[shares.first[d]];
  for (const std::span<const int32_t> hosts :
       {demands.holders(demand), demands.receivers(demand)}) {
    for (const int32_t host : hosts) {
      const double want = static_cast<double>(*amount++) / static_cast<double>(shares.unit);
      EXPECT_LE(std::abs(static_cast<double>(sent[host]) - want),
                static_cast<double>(rounding_bytes) + 1e-6)
          << "host " << host;
    }
  }
}

TEST(HostRoutesTest, AFanOutMakesTreesOfAChain) {
  const Demands demands = OneDemand({0}, {1, 2, 3, 4, 5}, 100'000);
  const SendShares shares = SharesOf({100'000, 100'000, 100'000, 100'000, 100'000, 0});
  const HostRoutes routes = RoundShares(demands, shares, NetworkOf({1, 1, 1, 1, 1, 1}), 2);
  ASSERT_EQ(routes.pieces.size(), 2u);
  EXPECT_EQ(routes.pieces[0].end, 50'000);
  EXPECT_THAT(routes.HopsOf(routes.pieces[0]),
              ElementsAre(HostHop{0, 0, 1}, HostHop{0, 1, 2}, HostHop{0, 1, 3}, HostHop{0, 2, 4},
                          HostHop{0, 2, 5}));
  EXPECT_EQ(routes.pieces[1].end, 100'000);
  EXPECT_THAT(routes.HopsOf(routes.pieces[1]),
              ElementsAre(HostHop{0, 0, 3}, HostHop{0, 3, 4}, HostHop{0, 3, 1}, HostHop{0, 4, 2},
                          HostHop{0, 4, 5}));
  ExpectSound(demands, shares, routes, 0);
}

// A demand of each random request, large enough to be cut into parts.
TEST(HostRoutesTest, WithAFanOutEveryHostSendsWhatItIsToSend) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const int holders = 1 + static_cast<int>(random() % 2);
    const int hosts = holders + 2 + static_cast<int>(random() % 30);
    const int64_t fan_out = 1 + static_cast<int64_t>(random() % 9);
    const uint64_t rates_max = random() % 2 == 0 ? 1 : 3;
    std::vector<int64_t> rates;
    std::vector<int32_t> holder_ranks, receiver_ranks;
    for (int h = 0; h < hosts; ++h) {
      rates.push_back(1 + static_cast<int64_t>(random() % rates_max));
      (h < holders ? holder_ranks : receiver_ranks).push_back(h);
    }
    const int64_t bytes = int64_t{1} << 30;
    const Demands demands = OneDemand(holder_ranks, receiver_ranks, bytes);
    const HostNetwork network = NetworkOf(rates);
    const SendShares shares =
        ComputeSendShares(demands, network, ComputeBound(demands, network).seconds());
    const HostRoutes routes = RoundShares(demands, shares, network, fan_out);
    ExpectSound(demands, shares, routes, 0, 1 + std::ssize(routes.pieces) * fan_out);
  }
}

TEST(HostRoutesTest, RoutesOfRandomDemandsAreSound) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const int hosts = 2 + static_cast<int>(random() % 6);
    std::vector<int64_t> rates;
    for (int h = 0; h < hosts; ++h) rates.push_back(1 + static_cast<int64_t>(random() % 5));
    const HostNetwork network = NetworkOf(rates);
    Demands demands;
    for (int d = 0; d < 5; ++d) {
      std::vector<int32_t> holders, receivers;
      for (int h = 0; h < hosts; ++h) {
        const uint64_t role = random() % 3;
        if (role < 2) (role == 0 ? holders : receivers).push_back(h);
      }
      if (holders.empty() || receivers.empty()) continue;
      demands.demands.push_back({demands.sets.Intern(holders), demands.sets.Intern(receivers),
                                 1 + static_cast<int64_t>(random() % 1000)});
    }
    const Fraction bound = ComputeBound(demands, network).seconds();
    const SendShares shares = ComputeSendShares(demands, network, bound);
    const HostRoutes routes = RoundShares(demands, shares, network);
    for (size_t d = 0; d < demands.demands.size(); ++d) {
      if (shares.first[d] != SendShares::kSole) {
        ExpectSound(demands, shares, routes, static_cast<int64_t>(d));
      }
    }
  }
}

}  // namespace
}  // namespace crossmesh
