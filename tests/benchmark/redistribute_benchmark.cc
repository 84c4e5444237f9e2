// How long the search for redistributions takes, and how near it comes to its bound and to the
// methods of the literature: over all pairs of layouts of six small meshes, and over pairs on large
// ones by chance. Prints tables. Deterministic apart from times.

#include "common/base/check.h"
#include "common/base/table.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/redistribute/testing/random_redistribution.h"
#include "planner/redistribute/testing/redistribution_study.h"
#include "tests/benchmark/measure.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

struct Options {
  int64_t large_pairs = 200;
  uint64_t first_seed = 1;
  int64_t nodes_max = 50000;
  bool verbose = false;
};

double Percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

RedistributionResult Search(const RedistributionRequest& request, int64_t nodes_max) {
  const TypeSpace space(request, NeededAtoms(request));
  const int64_t limit =
      std::max(space.LocalBytes(space.source()), space.LocalBytes(space.destination()));
  absl::StatusOr<RedistributionResult> result =
      SearchRedistribution(request, {.objective = RedistributionObjective::kBytes,
                                     .local_bytes_max = limit,
                                     .relay = nodes_max == 0,
                                     .nodes_max = nodes_max});
  if (!result.ok())
    std::printf("%s: %s to %s of %s on %s\n", std::string(result.status().message()).c_str(),
                space.Text(space.source()).c_str(), space.Text(space.destination()).c_str(),
                ToString(space.shape()).c_str(), AxesToString(space.axes()).c_str());
  if (!result.ok()) return Search(request, 0);
  return *std::move(result);
}

void MeasureStudy(const Options& options) {
  std::vector<double> seconds;
  for (const StudiedMesh& mesh : StudiedMeshes()) {
    for (size_t source = 0; source < mesh.layouts.size(); ++source) {
      for (size_t destination = 0; destination < mesh.layouts.size(); ++destination) {
        if (source == destination) continue;
        const RedistributionRequest request = mesh.Request(source, destination);
        const double before = ThreadSeconds();
        const RedistributionResult result = Search(request, options.nodes_max);
        seconds.push_back(ThreadSeconds() - before);
      }
    }
  }
  std::printf("study: %zu pairs, median %.3f ms, 99th percentile %.3f ms, most %.3f ms\n",
              seconds.size(), Median(seconds) * 1e3, Percentile(seconds, 0.99) * 1e3,
              Percentile(seconds, 1) * 1e3);
}

void MeasureLarge(const Options& options) {
  const RandomRedistributionLimits limits{.axes = 5,
                                          .dimensions = 5,
                                          .devices_max = 4096,
                                          .elements_max = int64_t{1} << 40,
                                          .exact_counts = true,
                                          .partial = false,
                                          .uneven = false};
  std::vector<double> seconds;
  int64_t budgeted = 0;
  double ratio = 0;
  for (int64_t i = 0; i < options.large_pairs; ++i) {
    const RedistributionRequest request = RandomRedistribution(options.first_seed + i, limits);
    const double before = ThreadSeconds();
    const RedistributionResult result = Search(request, options.nodes_max);
    seconds.push_back(ThreadSeconds() - before);
    const Derivation& found = result.derivation;
    const double over_bound =
        found.bound_bytes() == 0
            ? 1
            : static_cast<double>(found.bytes()) / static_cast<double>(found.bound_bytes());
    ratio += std::log(over_bound);
    budgeted += found.origin() == DerivationOrigin::kBudget ? 1 : 0;
    if (options.verbose) {
      std::printf("seed %ld: %.3f ms, %ld nodes, %d atoms, %.3f of the bound, %s\n%s",
                  static_cast<long>(options.first_seed + i), seconds.back() * 1e3,
                  static_cast<long>(result.nodes), found.space().atom_count(), over_bound,
                  std::string(DerivationOriginName(found.origin())).c_str(), found.Text().c_str());
    }
  }
  std::printf(
      "large: %zu pairs, median %.3f ms, 99th percentile %.3f ms, most %.3f ms, "
      "%ld budgeted, %.4f of the bound\n",
      seconds.size(), Median(seconds) * 1e3, Percentile(seconds, 0.99) * 1e3,
      Percentile(seconds, 1) * 1e3, static_cast<long>(budgeted),
      std::exp(ratio / static_cast<double>(seconds.size())));
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  crossmesh::Options options;
  CLI::App app("Time and quality of redistributions");
  app.add_option("--large-pairs", options.large_pairs, "Pairs on large meshes");
  app.add_option("--first-seed", options.first_seed, "Of the large pairs");
  app.add_option("--nodes", options.nodes_max, "Budget of a search");
  app.add_flag("--verbose", options.verbose, "Each large pair");
  CLI11_PARSE(app, argc, argv);
  crossmesh::MeasureStudy(options);
  crossmesh::MeasureLarge(options);
}
