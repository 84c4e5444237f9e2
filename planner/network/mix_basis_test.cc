#include "planner/network/mix_basis.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pair;

constexpr double kTolerance = 1e-6;

TEST(MixBasisTest, TheFullestPortHasAllOfThePriceAtFirst) {
  const MixBasis basis({0.5, 0}, {{0, {{0, 1}}}, {1, {{1, 1}}}});
  EXPECT_NEAR(basis.time(), 1.5, kTolerance);
  EXPECT_NEAR(basis.Price(0), 1, kTolerance);
  EXPECT_NEAR(basis.Price(1), 0, kTolerance);
  EXPECT_NEAR(basis.PriceOfGroup(0), 1, kTolerance);
  EXPECT_NEAR(basis.PriceOfGroup(1), 0, kTolerance);
}

// Two thirds of the bytes through a port that is twice as fast.
TEST(MixBasisTest, ColumnsShareAGroup) {
  MixBasis basis({0, 0}, {{0, {{0, 2}}}});
  ASSERT_TRUE(basis.Add({0, {{1, 1}}}));
  EXPECT_FALSE(basis.Relieve());
  EXPECT_NEAR(basis.time(), 2.0 / 3, kTolerance);
  EXPECT_NEAR(basis.Price(0), 1.0 / 3, kTolerance);
  EXPECT_NEAR(basis.Price(1), 2.0 / 3, kTolerance);
  EXPECT_THAT(basis.Shares(), ElementsAre(Pair(0, DoubleNear(1.0 / 3, kTolerance)),
                                          Pair(1, DoubleNear(2.0 / 3, kTolerance))));
}

// The first group leaves a port that it shared to the second one when it has a port of its own.
TEST(MixBasisTest, ABetterColumnTakesAll) {
  MixBasis basis({0, 0, 0}, {{0, {{0, 1}}}, {1, {{0, 1}}}});
  EXPECT_NEAR(basis.time(), 2, kTolerance);
  ASSERT_TRUE(basis.Add({0, {{1, 0.5}}}));
  while (basis.Relieve()) {
  }
  EXPECT_NEAR(basis.time(), 1, kTolerance);
  EXPECT_THAT(basis.Shares(),
              ElementsAre(Pair(1, DoubleNear(1, kTolerance)), Pair(2, DoubleNear(1, kTolerance))));
}

// Every group can use two ports; columns come until none helps, so that the shares are optimal when
// no column is cheaper than its group.
TEST(MixBasisTest, RandomSharesAddUpAndFillThePortsAsTheTimeSays) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int32_t ports = 1 + static_cast<int32_t>(random() % 6);
    const int32_t groups = 1 + static_cast<int32_t>(random() % 8);
    const auto random_column = [&](int32_t group) {
      MixBasis::Column column{.group = group};
      for (int32_t port = 0; port < ports; ++port) {
        if (random() % 2 == 0) column.loads.emplace_back(port, 0.1 * double(1 + random() % 9));
      }
      return column;
    };
    std::vector<double> fixed(ports);
    for (double& load : fixed) load = 0.1 * double(random() % 5);
    std::vector<MixBasis::Column> taken;
    for (int32_t group = 0; group < groups; ++group) taken.push_back(random_column(group));
    std::vector<MixBasis::Column> pool = taken;  // they may have to come back
    for (int i = 0; i < 40; ++i) {
      pool.push_back(random_column(static_cast<int32_t>(random() % groups)));
    }
    MixBasis basis(fixed, taken);
    const auto helps = [&basis](const MixBasis::Column& column) {
      return basis.PriceOf(column) < basis.PriceOfGroup(column.group) - kTolerance;
    };
    int steps = 0;
    for (; steps < 1000; ++steps) {
      if (basis.Relieve()) continue;
      const auto next = std::ranges::find_if(pool, helps);
      if (next == pool.end()) break;
      ASSERT_TRUE(basis.Add(*next));
      taken.push_back(*next);
    }
    ASSERT_LT(steps, 1000);
    std::vector<double> loads = fixed, shares(groups);
    for (const auto& [column, share] : basis.Shares()) {
      EXPECT_GE(share, 0);
      shares[taken[column].group] += share;
      for (const auto& [port, load] : taken[column].loads) loads[port] += share * load;
    }
    for (const double share : shares) EXPECT_NEAR(share, 1, kTolerance);
    EXPECT_NEAR(*std::ranges::max_element(loads), basis.time(), kTolerance);
    // No shares can do with less time: at the prices, the cheapest columns pay all of it.
    double paid = 0;
    for (int32_t port = 0; port < ports; ++port) paid += fixed[port] * basis.Price(port);
    for (int32_t group = 0; group < groups; ++group) {
      double cheapest = basis.PriceOfGroup(group);
      for (const MixBasis::Column& column : pool) {
        if (column.group == group) cheapest = std::min(cheapest, basis.PriceOf(column));
      }
      paid += cheapest;
    }
    EXPECT_NEAR(paid, basis.time(), 100 * kTolerance);
  }
}

}  // namespace
}  // namespace crossmesh
