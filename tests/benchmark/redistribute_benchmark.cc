// How long the search for redistributions takes, and how near it comes to its bound and to the
// methods of the literature: over all pairs of layouts of six small meshes, and over pairs on large
// ones by chance. Prints tables. Deterministic apart from times.

#include "common/base/check.h"
#include "common/base/table.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/baselines/baselines.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/redistribute/testing/random_redistribution.h"
#include "planner/redistribute/testing/redistribution_study.h"
#include "tests/benchmark/measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
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
  int64_t nodes_max = 40000;
  int64_t more_nodes_max = 1000000;
  bool large_only = false;
  bool verbose = false;
};

constexpr RandomRedistributionLimits kLarge{.axes = 5,
                                            .dimensions = 5,
                                            .devices_max = 4096,
                                            .elements_max = int64_t{1} << 40,
                                            .exact_counts = true,
                                            .partial = false,
                                            .uneven = false};

double Percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// Nothing where the budget is spent before there is any path.
absl::StatusOr<RedistributionResult> Search(const RedistributionRequest& request,
                                            int64_t nodes_max) {
  const TypeSpace space(request, NeededAtoms(request));
  const int64_t limit =
      std::max(space.LocalBytes(space.source()), space.LocalBytes(space.destination()));
  return SearchRedistribution(request, {.objective = RedistributionObjective::kBytes,
                                        .local_bytes_max = limit,
                                        .relay = false,
                                        .nodes_max = nodes_max});
}

// Logarithms of ratios, for a geometric mean, and the greatest ratio.
struct Ratios {
  double logarithms = 0;
  double most = 0;
  int64_t count = 0;

  void Add(int64_t bytes, int64_t to) {
    if (to == 0) return;
    const double ratio = static_cast<double>(bytes) / static_cast<double>(to);
    logarithms += std::log(ratio);
    most = std::max(most, ratio);
    ++count;
  }
  std::string Text() const {
    if (count == 0) return "-";
    return absl::StrFormat("%.3f (%.2f)", std::exp(logarithms / static_cast<double>(count)), most);
  }
};

// A mesh of the study, or the large pairs: what the search takes to the bound, and what each
// baseline takes to the search.
struct Comparison {
  Ratios search;
  int64_t at_bound = 0;
  int64_t pairs = 0;
  std::array<Ratios, std::size(kRedistributionBaselines)> baselines;

  void Add(const RedistributionRequest& request, const Derivation& found) {
    ++pairs;
    at_bound += found.bytes() == found.bound_bytes() ? 1 : 0;
    search.Add(found.bytes(), found.bound_bytes());
    for (size_t i = 0; i < baselines.size(); ++i) {
      const absl::StatusOr<Derivation> other = PlanBaseline(kRedistributionBaselines[i], request);
      if (other.ok()) baselines[i].Add(other->bytes(), found.bytes());
    }
  }
  std::vector<std::string> Row(const std::string& name) const {
    std::vector<std::string> row = {name, absl::StrCat(pairs), search.Text(),
                                    absl::StrFormat("%.0f %%", 100 * static_cast<double>(at_bound) /
                                                                   static_cast<double>(pairs))};
    for (const Ratios& ratios : baselines) row.push_back(ratios.Text());
    return row;
  }
};

std::vector<std::string> Header() {
  std::vector<std::string> header = {"mesh", "pairs", "search / bound", "at the bound"};
  for (const RedistributionBaseline baseline : kRedistributionBaselines) {
    header.push_back(absl::StrCat(RedistributionBaselineName(baseline), " / search"));
  }
  return header;
}

void PrintTimes(const char* name, const std::vector<double>& seconds) {
  std::printf("%s: %zu searches, median %.3f ms, 99th percentile %.3f ms, most %.3f ms\n", name,
              seconds.size(), Median(seconds) * 1e3, Percentile(seconds, 0.99) * 1e3,
              Percentile(seconds, 1) * 1e3);
}

void MeasureStudy(const Options& options, TextTable& table) {
  std::vector<double> seconds;
  for (const StudiedMesh& mesh : StudiedMeshes()) {
    Comparison comparison;
    for (size_t source = 0; source < mesh.layouts.size(); ++source) {
      for (size_t destination = 0; destination < mesh.layouts.size(); ++destination) {
        if (source == destination) continue;
        const RedistributionRequest request = mesh.Request(source, destination);
        const double before = ThreadSeconds();
        const absl::StatusOr<RedistributionResult> result = Search(request, options.nodes_max);
        seconds.push_back(ThreadSeconds() - before);
        CHECK_OK(result);
        comparison.Add(request, result->derivation);
      }
    }
    table.AddRow(comparison.Row(mesh.name));
  }
  PrintTimes("study", seconds);
}

void PrintPair(uint64_t seed, double seconds, const RedistributionResult& result) {
  std::printf("seed %llu: %.3f ms, %lld types, %s\n%s", static_cast<unsigned long long>(seed),
              seconds * 1e3, static_cast<long long>(result.nodes),
              std::string(DerivationOriginName(result.derivation.origin())).c_str(),
              result.derivation.Text().c_str());
}

void MeasureLarge(const Options& options, TextTable& table) {
  std::vector<double> seconds;
  Comparison comparison;
  int64_t unanswered = 0;
  int64_t answered_by_budget = 0;
  Ratios budgeted;  // what a search within the budget takes to one with more
  for (int64_t i = 0; i < options.large_pairs; ++i) {
    const uint64_t seed = options.first_seed + static_cast<uint64_t>(i);
    const RedistributionRequest request = RandomRedistribution(seed, kLarge);
    const double before = ThreadSeconds();
    const absl::StatusOr<RedistributionResult> result = Search(request, options.nodes_max);
    seconds.push_back(ThreadSeconds() - before);
    if (!result.ok()) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                  std::string(result.status().message()).c_str());
      ++unanswered;
      continue;
    }
    comparison.Add(request, result->derivation);
    if (options.verbose) PrintPair(seed, seconds.back(), *result);
    if (result->derivation.origin() != DerivationOrigin::kBudget) continue;
    ++answered_by_budget;
    const absl::StatusOr<RedistributionResult> more = Search(request, options.more_nodes_max);
    if (!more.ok()) continue;
    budgeted.Add(result->derivation.bytes(), more->derivation.bytes());
    std::printf("seed %llu: %lld bytes by the budget, %lld by the larger one\n",
                static_cast<unsigned long long>(seed),
                static_cast<long long>(result->derivation.bytes()),
                static_cast<long long>(more->derivation.bytes()));
  }
  table.AddRow(comparison.Row("5 axes, 5 dimensions, seeded"));
  PrintTimes("large", seconds);
  std::printf(
      "large: by a budget of %lld types %lld answers, at %s of those by one of %lld, and "
      "%lld without any\n",
      static_cast<long long>(options.nodes_max), static_cast<long long>(answered_by_budget),
      budgeted.Text().c_str(), static_cast<long long>(options.more_nodes_max),
      static_cast<long long>(unanswered));
}

// The same pairs by time, with relays, where the first axis crosses slower links.
void MeasureSeconds(const Options& options) {
  std::vector<double> seconds;
  int64_t relays = 0;
  int64_t answered_by_budget = 0;
  for (int64_t i = 0; i < options.large_pairs; ++i) {
    const RedistributionRequest request =
        RandomRedistribution(options.first_seed + static_cast<uint64_t>(i), kLarge);
    RedistributionOptions by_time{.cost = {.seconds_per_step = 6.6e-6},
                                  .nodes_max = options.nodes_max};
    for (size_t axis = 0; axis < request.axes.size(); ++axis) {
      by_time.cost.links.push_back(
          {.part = {static_cast<int32_t>(axis), 1, request.axes[axis].size},
           .seconds_per_message = axis == 0 ? 2.7e-6 : 0.6e-6,
           .bytes_per_second = axis == 0 ? 20e9 : 94e9});
    }
    const double before = ThreadSeconds();
    const absl::StatusOr<RedistributionResult> result = SearchRedistribution(request, by_time);
    seconds.push_back(ThreadSeconds() - before);
    CHECK_OK(result);
    if (options.verbose) {
      PrintPair(options.first_seed + static_cast<uint64_t>(i), seconds.back(), *result);
    }
    const std::vector<RedistributionStep>& steps = result->derivation.steps();
    relays += std::ranges::any_of(
        steps, [](const RedistributionStep& step) { return step.kind == StepKind::kRelay; });
    answered_by_budget += result->derivation.origin() == DerivationOrigin::kBudget ? 1 : 0;
  }
  PrintTimes("large by time", seconds);
  std::printf("large by time: %lld with a relay, %lld answers by the budget\n",
              static_cast<long long>(relays), static_cast<long long>(answered_by_budget));
}

// Every axis of 8x8x4x4x4 devices moves to the next of five dimensions, and two share one.
void MeasureLargest(const Options& options) {
  RedistributionRequest request{.axes = {{"a", 8}, {"b", 8}, {"c", 4}, {"d", 4}, {"e", 4}},
                                .item_bytes = 4};
  const std::vector<int64_t> lengths = {256, 256, 128, 64, 64};
  const absl::StatusOr<Shape> shape = Shape::Create(lengths);
  CHECK_OK(shape);
  request.shape = *shape;
  for (int32_t axis = 0; axis < 5; ++axis) {
    request.source.dimensions.push_back({{.axis = axis, .size = request.axes[axis].size}});
  }
  request.destination.dimensions = request.source.dimensions;
  std::ranges::rotate(request.destination.dimensions, request.destination.dimensions.begin() + 1);
  std::swap(request.destination.dimensions[0][0], request.destination.dimensions[3][0]);
  request.destination.dimensions[1].push_back(request.destination.dimensions[2][0]);
  request.destination.dimensions[2].clear();
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const double before = ThreadSeconds();
    const absl::StatusOr<RedistributionResult> result = Search(request, options.nodes_max);
    seconds.push_back(ThreadSeconds() - before);
    CHECK_OK(result);
    if (i == 0) std::printf("4096 devices:\n%s", result->derivation.Text().c_str());
  }
  PrintTimes("4096 devices", seconds);
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  crossmesh::Options options;
  CLI::App app("Time and quality of redistributions");
  app.add_option("--large-pairs", options.large_pairs, "Pairs on large meshes");
  app.add_option("--first-seed", options.first_seed, "Of the large pairs");
  app.add_option("--nodes", options.nodes_max, "Budget of a search, in types");
  app.add_option("--more-nodes", options.more_nodes_max,
                 "Budget of the search that one cut off by its budget is compared with");
  app.add_flag("--large-only", options.large_only, "Without the pairs of small meshes");
  app.add_flag("--verbose", options.verbose, "Each large pair");
  CLI11_PARSE(app, argc, argv);
  crossmesh::TextTable table(crossmesh::Header());
  if (!options.large_only) crossmesh::MeasureStudy(options, table);
  crossmesh::MeasureLarge(options, table);
  crossmesh::MeasureSeconds(options);
  crossmesh::MeasureLargest(options);
  std::printf("Bytes, as geometric means (greatest)\n%s", table.ToString().c_str());
}
