#include "planner/parallelism/product_table.h"

#include "common/testing/status_matchers.h"
#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/device_profile.h"
#include "planner/parallelism/grid_ranking.h"
#include "planner/parallelism/step_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr ProductMode kEveryMode[] = {ProductMode::kForward, ProductMode::kInputGradient,
                                      ProductMode::kWeightGradient};

double SecondsOf(const LayerProducts& products, ProductMode mode) {
  switch (mode) {
    case ProductMode::kForward:
      return products.forward;
    case ProductMode::kInputGradient:
      return products.input_gradient;
    case ProductMode::kWeightGradient:
      return products.weight_gradient;
  }
  return 0;
}

// Sizes and rates by a seed.
class RandomProducts {
 public:
  explicit RandomProducts(uint64_t seed) : random_(seed) {}

  double Factor(double most) {
    return std::exp(std::uniform_real_distribution<double>(0, std::log(most))(random_));
  }
  ProductSize Size() { return {Factor(1e6), Factor(1e6), Factor(1e6)}; }
  // At least as large in each dimension.
  ProductSize NotSmaller(const ProductSize& size) {
    const auto one = [this](double value) { return value * (Coin() ? 1 : Factor(100)); };
    return {one(size.m), one(size.n), one(size.k)};
  }
  std::vector<double> Sizes() {
    std::vector<double> sizes(std::uniform_int_distribution<size_t>(1, 4)(random_));
    for (double& size : sizes) size = std::floor(Factor(1e5));
    std::ranges::sort(sizes);
    sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
    return sizes;
  }
  // A lattice for each mode, in any order. `rate`: of a size.
  template <typename Rate>
  std::vector<MeasuredProduct> Lattices(const Rate& rate) {
    std::vector<MeasuredProduct> products;
    for (const ProductMode mode : kEveryMode) {
      const std::vector<double> m = Sizes(), n = Sizes(), k = Sizes();
      for (size_t i = 0; i < m.size() * n.size() * k.size(); ++i) {
        const ProductSize size{m[i / (n.size() * k.size())], n[i / k.size() % n.size()],
                               k[i % k.size()]};
        products.push_back({mode, size, rate(size)});
      }
    }
    std::ranges::shuffle(products, random_);
    return products;
  }

 private:
  bool Coin() { return std::uniform_int_distribution<int>(0, 1)(random_) == 1; }

  std::mt19937_64 random_;
};

// Whose law is a rate that nothing changes.
DeviceProfile FlatDevice() {
  DeviceProfile device = *FindDevicePreset("a100");
  device.half_size = 0;
  device.memory_bytes_per_second = 1e21;
  return device;
}

TEST(ProductTableTest, WhatWasMeasuredIsGivenBack) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomProducts random(seed);
    const auto products =
        random.Lattices([&](const ProductSize&) { return 1e12 * random.Factor(100); });
    ASSERT_OK_AND_ASSIGN(const ProductTable table, ProductTable::Create(products));
    for (const MeasuredProduct& product : products) {
      const auto rate = table.Find(product.mode, product.size);
      ASSERT_TRUE(rate.has_value());
      EXPECT_EQ(rate->at, product.size);
      EXPECT_TRUE(rate->is_measured);
      EXPECT_NEAR(rate->flops_per_second / product.flops_per_second, 1, 1e-9);
    }
  }
}

TEST(ProductTableTest, RatesLieBetweenThoseThatWereMeasured) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomProducts random(seed);
    const auto products =
        random.Lattices([&](const ProductSize&) { return 1e12 * random.Factor(100); });
    ASSERT_OK_AND_ASSIGN(const ProductTable table, ProductTable::Create(products));
    for (int i = 0; i < 40; ++i) {
      const double rate = table.Find(kEveryMode[i % 3], random.Size())->flops_per_second;
      double least = 1e30, most = 0;
      for (const MeasuredProduct& product : products) {
        if (product.mode != kEveryMode[i % 3]) continue;
        least = std::min(least, product.flops_per_second);
        most = std::max(most, product.flops_per_second);
      }
      EXPECT_GE(rate, least * (1 - 1e-9));
      EXPECT_LE(rate, most * (1 + 1e-9));
    }
  }
}

TEST(ProductTableTest, WhatIsInterpolatedIsNotSaidToBeMeasured) {
  const MeasuredProduct products[] = {{ProductMode::kForward, {10, 8, 8}, 1e12},
                                      {ProductMode::kForward, {1000, 8, 8}, 4e12}};
  ASSERT_OK_AND_ASSIGN(const ProductTable table, ProductTable::Create(products));
  const auto between = table.Find(ProductMode::kForward, {100, 8, 8});
  ASSERT_TRUE(between.has_value());
  EXPECT_FALSE(between->is_measured);
  EXPECT_NEAR(between->flops_per_second, 2e12, 1e3);
  EXPECT_TRUE(table.Find(ProductMode::kForward, {1e6, 1e6, 1e6})->is_measured);
}

TEST(ProductTableTest, AFlatTableIsTheFlatRate) {
  const DeviceProfile flat = FlatDevice();
  const double rate = flat.flops_per_second * flat.product_ceiling;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomProducts random(seed);
    DeviceProfile measured = flat;
    ASSERT_OK_AND_ASSIGN(
        measured.products,
        ProductTable::Create(random.Lattices([&](const ProductSize&) { return rate; })));
    for (int i = 0; i < 40; ++i) {
      const ProductSize size = random.Size();
      for (const ProductMode mode : kEveryMode) {
        EXPECT_NEAR(
            SecondsOf(ProductsOf(measured, size), mode) * rate / (2 * size.m * size.n * size.k), 1,
            1e-9);
      }
    }
  }
}

// Between what was measured, and beyond it, where the law goes on.
TEST(ProductTableTest, WhereLargerProductsWereMeasuredToTakeLongerAllDo) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomProducts random(seed);
    DeviceProfile device = *FindDevicePreset("h100");
    // Rates that fall and rise, but never as fast as the sizes do.
    const double m = random.Factor(9) / 10, n = random.Factor(9) / 10, k = random.Factor(9) / 10;
    ASSERT_OK_AND_ASSIGN(
        device.products, ProductTable::Create(random.Lattices([&](const ProductSize& size) {
          return 1e12 * std::pow(size.m, m) / std::pow(size.n, n / 2) * std::pow(size.k, k);
        })));
    for (int i = 0; i < 100; ++i) {
      const ProductSize small = random.Size();
      const ProductSize large = random.NotSmaller(small);
      for (const ProductMode mode : kEveryMode) {
        EXPECT_LE(SecondsOf(ProductsOf(device, small), mode),
                  SecondsOf(ProductsOf(device, large), mode) * (1 + 1e-9))
            << ProductModeName(mode) << " m " << small.m << " to " << large.m << " n " << small.n
            << " to " << large.n << " k " << small.k << " to " << large.k;
      }
    }
  }
}

TEST(ProductTableTest, AModeThatWasNotMeasuredHasTheLaw) {
  DeviceProfile device = *FindDevicePreset("a100");
  const ProductSize size{4096, 4096, 4096};
  const double law = ProductsOf(device, size).forward;
  const MeasuredProduct slow{ProductMode::kWeightGradient, size, device.flops_per_second / 10};
  ASSERT_OK_AND_ASSIGN(device.products, ProductTable::Create({&slow, 1}));
  const LayerProducts products = ProductsOf(device, size);
  EXPECT_EQ(products.forward, law);
  EXPECT_EQ(products.input_gradient, law);
  EXPECT_NEAR(products.weight_gradient, 2 * std::pow(4096, 3) / 31.2e12, 1e-9);
}

// Of a step on a grid of sums, gathers and a pipeline.
class MeasuredStepTest : public testing::Test {
 protected:
  static RankedGrid PriceWith(const DeviceProfile& device, const char* grid, int32_t zero = 0) {
    Transformer model = PlainTransformer("", 8, 2048, 32);
    model.vocabulary = 32000;
    Training training{.batch = 64, .sequence = 1024, .microbatch = 1, .zero = zero};
    const PublishedCluster nodes{
        .name = "", .devices_per_node = 4, .intra = 200, .inter = 100, .rows = {}};
    const Grid parsed = *ParseGrid(grid);
    const StepModel step = *StepModel::Create(std::move(model), training, device,
                                              *RatesOfCluster(nodes, parsed.devices()));
    return *PriceGrid(step, parsed, {}, true);
  }
  static ProductTable OneRate(ProductMode mode, double flops_per_second) {
    const MeasuredProduct product{mode, {4096, 4096, 4096}, flops_per_second};
    return *ProductTable::Create({&product, 1});
  }
};

TEST_F(MeasuredStepTest, AFlatTableChangesNothing) {
  const DeviceProfile flat = FlatDevice();
  DeviceProfile measured = flat;
  std::vector<MeasuredProduct> products;
  for (const ProductMode mode : kEveryMode) {
    products.push_back({mode, {100, 100, 100}, flat.flops_per_second * flat.product_ceiling});
  }
  ASSERT_OK_AND_ASSIGN(measured.products, ProductTable::Create(products));
  for (const char* grid : {"c=1", "r=2,z=4", "c=2,r=2,z=2", "z=2,pipeline=4", "z=4,data=2"}) {
    const RankedGrid one = PriceWith(flat, grid), other = PriceWith(measured, grid);
    EXPECT_NEAR(other.seconds / one.seconds, 1, 1e-9) << grid;
    EXPECT_NEAR(other.price.exposed(), one.price.exposed(), 1e-9 * one.seconds) << grid;
  }
}

TEST_F(MeasuredStepTest, ASlowWeightGradientTakesItsTimeAndHidesMore) {
  DeviceProfile flat = FlatDevice();
  flat.flops_per_second *= 20;  // so that products hide little
  const double rate = flat.flops_per_second * flat.product_ceiling;
  DeviceProfile slow = flat;
  slow.products = OneRate(ProductMode::kWeightGradient, rate / 10);
  const RankedGrid before = PriceWith(flat, "c=2,r=2"), after = PriceWith(slow, "c=2,r=2");
  // Of the four products of each block, whose share is a third of all products, ten times as long.
  const double products = 64.0 * 8 * 3 * 2 * 12 * 2048 * 2048 * 1024 / 4 / rate;
  EXPECT_NEAR(after.price.compute_seconds - before.price.compute_seconds, products / 3 * 9,
              1e-6 * products);
  EXPECT_LT(after.price.exposed_seconds[GridAxis::kR], before.price.exposed_seconds[GridAxis::kR]);
  // Forward products hide, and take, what they did.
  DeviceProfile forward = flat;
  forward.products = OneRate(ProductMode::kForward, rate / 10);
  EXPECT_EQ(PriceWith(forward, "c=2,r=2").price.exposed_seconds[GridAxis::kR],
            before.price.exposed_seconds[GridAxis::kR]);
}

std::string ProductText(const char* mode, int64_t m, int64_t rate = 1000) {
  return absl::StrCat("{", mode, "\"m\": ", m, ", \"n\": 8, \"k\": 8, \"flops_per_second\": ", rate,
                      "}");
}

TEST(ProductFileTest, WithoutAModeAProductStandsForAll) {
  ASSERT_OK_AND_ASSIGN(
      const ProductTable table,
      ParseProductTable("f", absl::StrCat("{\"products\": [", ProductText("", 64), "]}")));
  for (const ProductMode mode : kEveryMode) {
    EXPECT_NEAR(table.Find(mode, {1, 1, 1})->flops_per_second, 1000, 1e-6);
  }
  EXPECT_TRUE(ParseProductTable("f", "{\"products\": []}")->empty());
}

TEST(ProductFileTest, WhatItCannotMeanIsRefused) {
  const std::string forward = "\"mode\": \"forward\", ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {ProductText("\"mode\": \"NN\", ", 8), "f: product 0: mode: expected forward"},
      {ProductText("\"speed\": 1, ", 8), "speed"},
      {ProductText("", 0), "product forward of m=0, n=8, k=8: expected sizes of 1"},
      {ProductText("", 8, 0), "flops per second, found 0"},
      {ProductText("", 8) + "," + ProductText(forward.c_str(), 8),
       "product forward of m=8, n=8, k=8: expected it once"},
      {ProductText("", 8) + "," + ProductText("", 16) +
           ",{\"m\": 8, \"n\": 16, \"k\": 8, \"flops_per_second\": 1000}",
       "product forward of m=16, n=16, k=8: expected one of every m with every n"},
      {ProductText(forward.c_str(), 8) +
           ",{\"mode\": \"forward\", \"m\": 9, \"n\": 16, \"k\": 9, \"flops_per_second\": 1000}",
       "products forward: expected one of every m with every n and every k, 8 of them"}};
  for (const auto& [text, why] : cases) {
    EXPECT_THAT(ParseProductTable("f", absl::StrCat("{\"products\": [", text, "]}")).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)))
        << text;
  }
}

}  // namespace
}  // namespace crossmesh
