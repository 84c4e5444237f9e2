// How long the ranking of grids takes on one core: all factorisations of some counts of devices
// over the seven axes. Prints a table. Deterministic apart from times.

#include "common/base/check.h"
#include "common/base/format.h"
#include "common/base/table.h"
#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/device_profile.h"
#include "planner/parallelism/grid_ranking.h"
#include "planner/parallelism/product_table.h"
#include "tests/benchmark/measure.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

struct Options {
  std::vector<int64_t> devices = {512, 6144, 15120, 16384};
  int64_t batch = 8192;
  int rounds = 5;
  bool measured_products = false;
};

// Sizes of 64 to 65536, by fours, in all three modes, with the law's own rates.
ProductTable ProductsByLaw(const DeviceProfile& device) {
  constexpr std::array<double, 6> kSizes = {64, 256, 1024, 4096, 16384, 65536};
  std::vector<MeasuredProduct> products;
  for (size_t i = 0; i < 216; ++i) {
    const double m = kSizes[i / 36], n = kSizes[i / 6 % 6], k = kSizes[i % 6];
    const double rate = 2 * m * n * k / ProductSeconds(device, m, n, k);
    for (const ProductMode mode :
         {ProductMode::kForward, ProductMode::kInputGradient, ProductMode::kWeightGradient}) {
      products.push_back({mode, {m, n, k}, rate});
    }
  }
  const absl::StatusOr<ProductTable> table = ProductTable::Create(products);
  CHECK_OK(table);
  return *table;
}

Transformer Dense() {
  Transformer model = PlainTransformer("dense", 128, 16384, 128);
  model.vocabulary = 51200;
  return model;
}
Transformer Mixture() {
  Transformer model = PlainTransformer("experts", 64, 8192, 64);
  model.experts = 64;
  model.experts_per_token = 4;
  model.vocabulary = 51200;
  return model;
}

struct Case {
  const char* name;
  Transformer model;
  int64_t devices;
  int64_t microbatch;
};

void Measure(const Case& measured, const Options& options, TextTable& table) {
  const absl::StatusOr<const PublishedCluster*> cluster = FindCluster("h100_8x400g_theory");
  absl::StatusOr<DeviceProfile> device = FindDevicePreset("h100");
  CHECK_OK(cluster);
  CHECK_OK(device);
  if (options.measured_products) device->products = ProductsByLaw(*device);
  const absl::StatusOr<PositionRates> rates = RatesOfCluster(**cluster, measured.devices);
  CHECK_OK(rates);
  const Training training{
      .batch = options.batch, .sequence = 2048, .microbatch = measured.microbatch, .zero = 1};
  const absl::StatusOr<StepModel> step =
      StepModel::Create(measured.model, training, *device, *rates);
  CHECK_OK(step);
  std::vector<double> seconds;
  GridRanking ranking;
  for (int round = 0; round < options.rounds; ++round) {
    const double before = ThreadSeconds();
    ranking = RankGrids(*step);
    seconds.push_back(ThreadSeconds() - before);
  }
  const size_t grids = ranking.feasible.size() + ranking.refused.size();
  table.AddRow({measured.name, absl::StrCat(measured.devices),
                measured.microbatch == 0 ? "best" : absl::StrCat(measured.microbatch),
                absl::StrCat(grids), absl::StrCat(ranking.feasible.size()),
                FormatSeconds(MedianOf(std::move(seconds))),
                ranking.feasible.empty() ? "-" : ToString(ranking.feasible.front().shape.grid)});
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  crossmesh::Options options;
  CLI::App app("Time of the ranking of grids");
  app.add_option("--devices", options.devices, "Counts of devices");
  app.add_option("--batch", options.batch, "Sequences of a step");
  app.add_option("--rounds", options.rounds, "Of each case; the median is shown");
  app.add_flag("--measured-products", options.measured_products,
               "Products by a table of 216 sizes in each mode");
  CLI11_PARSE(app, argc, argv);
  crossmesh::TextTable table(
      {"MODEL", "DEVICES>", "MICROBATCH>", "GRIDS>", "FEASIBLE>", "TIME>", "BEST"});
  for (const int64_t microbatch : {1, 0}) {
    for (const int64_t devices : options.devices) {
      crossmesh::Measure({"dense", crossmesh::Dense(), devices, microbatch}, options, table);
      crossmesh::Measure({"experts", crossmesh::Mixture(), devices, microbatch}, options, table);
    }
  }
  std::printf("%s", table.ToString().c_str());
}
