// What is remembered gives the prices of what is worked out anew, bit by bit.

#include "planner/parallelism/product_prices.h"

#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/grid_ranking.h"
#include "planner/parallelism/grid_rules.h"
#include "planner/parallelism/step_model.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Rates by chance, so that products of more rows may be slower.
ProductTable TableByChance(std::mt19937_64& random) {
  constexpr double kM[] = {128, 2048, 32768}, kN[] = {256, 8192}, kK[] = {512, 4096};
  std::vector<MeasuredProduct> products;
  for (size_t i = 0; i < 12; ++i) {
    for (const ProductMode mode : {ProductMode::kForward, ProductMode::kWeightGradient}) {
      products.push_back({mode,
                          {.m = kM[i / 4], .n = kN[i / 2 % 2], .k = kK[i % 2]},
                          1e13 * (1 + static_cast<double>(random() % 50))});
    }
  }
  return *ProductTable::Create(products);
}

std::tuple<double, double, double> Seconds(const LayerProducts& products) {
  return {products.forward, products.input_gradient, products.weight_gradient};
}

TEST(ProductPricesTest, WhatIsRememberedIsWhatWouldBeWorkedOut) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  DeviceProfile device = *FindDevicePreset("h100");
  for (const bool has_table : {false, true}) {
    if (has_table) device.products = TableByChance(random);
    ProductPrices prices(device);
    // Of powers of two and others, more than are remembered, again and again.
    const auto size = [&random] {
      return static_cast<double>((random() % 3 == 0 ? 3 : 1) << random() % 14);
    };
    for (int i = 0; i < 20'000; ++i) {
      const ProductSize asked{.m = size(), .n = size(), .k = size()};
      ASSERT_EQ(Seconds(prices.Of(asked)), Seconds(ProductsOf(device, asked)));
    }
  }
}

// The best microbatch of a grid that keeps to the rules, by prices one by one.
std::optional<RankedGrid> BestByPrices(const StepModel& step, const Grid& grid) {
  std::optional<RankedGrid> best;
  const int64_t local = step.training().batch / grid.sample_groups();
  for (int64_t microbatch = 1; microbatch <= local; ++microbatch) {
    if (FirstFailure(step.model(), step.training(), grid, microbatch)) continue;
    const GridShape shape = ShapeOf(step.model(), step.training(), grid, microbatch);
    const double bytes = step.Memory(shape).total();
    if (bytes > static_cast<double>(step.device().memory_bytes)) continue;
    const StepPrice price = step.Price(shape);
    const double seconds = price.seconds();
    if (best && std::tie(best->seconds, best->memory_bytes) <= std::tie(seconds, bytes)) continue;
    best = {shape, price, seconds, bytes};
  }
  return best;
}

bool Precedes(const RankedGrid& left, const RankedGrid& right) {
  const auto key = [](const RankedGrid& of) {
    return std::tuple(of.seconds, of.memory_bytes, of.shape.grid.axes_used(), of.shape.grid);
  };
  return key(left) < key(right);
}

TEST(ProductPricesTest, RankingsByATableAreThoseOfPricesOneByOne) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  for (const int64_t experts : {0, 8}) {
    Transformer model = PlainTransformer("", 12, 3072, 24);
    model.vocabulary = 32000;
    model.experts = experts;
    model.experts_per_token = experts > 0 ? 2 : 0;
    DeviceProfile device = *FindDevicePreset("h100");
    device.products = TableByChance(random);
    const Training training{.batch = 96, .sequence = 2048, .zero = static_cast<int>(experts / 8)};
    const StepModel step = *StepModel::Create(
        model, training, device, *RatesOfCluster(**FindCluster("h100_8x400g_theory"), 48));
    const GridRanking ranking = RankGrids(step);
    std::vector<RankedGrid> expected;
    for (const RankedGrid& ranked : ranking.feasible) {
      const std::optional<RankedGrid> best = BestByPrices(step, ranked.shape.grid);
      ASSERT_TRUE(best.has_value()) << ranked.shape.grid;
      expected.push_back(*best);
    }
    for (const RefusedGrid& refused : ranking.refused) {
      if (refused.rule != GridRule::kMemory) continue;
      EXPECT_FALSE(BestByPrices(step, refused.grid).has_value()) << refused.grid;
    }
    std::ranges::sort(expected, Precedes);
    ASSERT_GT(expected.size(), 50);
    int64_t not_the_largest = 0;
    for (size_t place = 0; place < expected.size(); ++place) {
      const RankedGrid& found = ranking.feasible[place];
      ASSERT_EQ(found.shape, expected[place].shape) << place;
      EXPECT_EQ(found.seconds, expected[place].seconds) << place;
      EXPECT_EQ(found.price.exposed_seconds, expected[place].price.exposed_seconds) << place;
      EXPECT_EQ(found.price.hidden_seconds, expected[place].price.hidden_seconds) << place;
      EXPECT_EQ(found.price.wire_bytes, expected[place].price.wire_bytes) << place;
      not_the_largest += found.shape.microbatches > 1 ? 1 : 0;
    }
    EXPECT_GT(not_the_largest, 0);
  }
}

}  // namespace
}  // namespace crossmesh
