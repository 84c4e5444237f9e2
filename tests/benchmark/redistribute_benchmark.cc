// How long the search for redistributions takes, and how near it comes to its bound and to the
// methods of the literature: over all pairs of layouts of six small meshes, over pairs on large
// ones by chance, and over a model's. Prints a line of JSON for each figure; tests/benchmark/
// redistributions makes a page of them. Deterministic apart from times.

#include "common/base/check.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/baselines/baselines.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/redistribute/testing/random_redistribution.h"
#include "planner/redistribute/testing/redistribution_study.h"
#include "tests/benchmark/measure.h"
#include "tests/benchmark/model_redistribution.h"

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
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

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

void Print(const nlohmann::json& figure) { std::printf("%s\n", figure.dump().c_str()); }

void PrintTimes(const std::string& searches, const std::vector<double>& seconds) {
  Print({{"figure", "times"},
         {"searches", searches},
         {"count", seconds.size()},
         {"median_seconds", MedianOf(seconds)},
         {"percentile_99_seconds", Percentile(seconds, 0.99)},
         {"most_seconds", Percentile(seconds, 1)}});
}

// Logarithms of ratios, for a geometric mean, and the greatest ratio.
struct Ratios {
  double logarithms = 0;
  double most = 0;
  int64_t count = 0;

  void Add(double cost, double to) {
    if (to == 0) return;
    logarithms += std::log(cost / to);
    most = std::max(most, cost / to);
    ++count;
  }
  nlohmann::json Json() const {
    if (count == 0) return nullptr;
    return {{"mean", std::exp(logarithms / static_cast<double>(count))}, {"most", most}};
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
    search.Add(static_cast<double>(found.bytes()), static_cast<double>(found.bound_bytes()));
    for (size_t i = 0; i < baselines.size(); ++i) {
      const absl::StatusOr<Derivation> other = PlanBaseline(kRedistributionBaselines[i], request);
      if (!other.ok()) continue;
      baselines[i].Add(static_cast<double>(other->bytes()), static_cast<double>(found.bytes()));
    }
  }
  void PrintAs(const std::string& mesh) const {
    nlohmann::json figure = {{"figure", "bytes"},
                             {"mesh", mesh},
                             {"pairs", pairs},
                             {"at_bound", at_bound},
                             {"search", search.Json()}};
    for (size_t i = 0; i < baselines.size(); ++i) {
      const std::string name(RedistributionBaselineName(kRedistributionBaselines[i]));
      figure["baselines"][name] = baselines[i].Json();
    }
    Print(figure);
  }
};

RedistributionOptions ByBytes(const RedistributionRequest& request, int64_t nodes_max) {
  const TypeSpace space(request, NeededAtoms(request));
  return {.objective = RedistributionObjective::kBytes,
          .local_bytes_max =
              std::max(space.LocalBytes(space.source()), space.LocalBytes(space.destination())),
          .relay = false,
          .nodes_max = nodes_max};
}

// With relays, where the first axis crosses slower links.
RedistributionOptions BySeconds(const RedistributionRequest& request, int64_t nodes_max) {
  RedistributionOptions options{.cost = {.seconds_per_step = 6.6e-6}, .nodes_max = nodes_max};
  for (size_t axis = 0; axis < request.axes.size(); ++axis) {
    options.cost.links.push_back({.part = {static_cast<int32_t>(axis), 1, request.axes[axis].size},
                                  .seconds_per_message = axis == 0 ? 2.7e-6 : 0.6e-6,
                                  .bytes_per_second = axis == 0 ? 20e9 : 94e9});
  }
  return options;
}

void MeasureStudy(const Options& options) {
  std::vector<double> seconds;
  for (const StudiedMesh& mesh : StudiedMeshes()) {
    Comparison comparison;
    for (size_t source = 0; source < mesh.layouts.size(); ++source) {
      for (size_t destination = 0; destination < mesh.layouts.size(); ++destination) {
        if (source == destination) continue;
        const RedistributionRequest request = mesh.Request(source, destination);
        const double before = ThreadSeconds();
        const absl::StatusOr<RedistributionResult> result =
            SearchRedistribution(request, ByBytes(request, options.nodes_max));
        seconds.push_back(ThreadSeconds() - before);
        CHECK_OK(result);
        comparison.Add(request, result->derivation);
      }
    }
    comparison.PrintAs(mesh.name);
  }
  PrintTimes("small meshes, by bytes", seconds);
}

// Pairs on large meshes by chance, with one objective.
class LargePairs {
 public:
  LargePairs(const Options& options, RedistributionObjective objective)
      : options_(options), by_bytes_(objective == RedistributionObjective::kBytes) {}

  void Measure() {
    for (int64_t i = 0; i < options_.large_pairs; ++i) {
      MeasurePair(options_.first_seed + static_cast<uint64_t>(i));
    }
    // By time a relay may come from any method.
    if (by_bytes_) comparison_.PrintAs("5 axes, 5 dimensions, by chance");
    PrintTimes(by_bytes_ ? "large, by bytes" : "large, by time", seconds_);
    Print({{"figure", "budget"},
           {"objective", by_bytes_ ? "bytes" : "time"},
           {"pairs", options_.large_pairs},
           {"types", options_.nodes_max},
           {"more_types", options_.more_nodes_max},
           {"without_answer", unanswered_},
           {"with_relay", with_relay_},
           {"answers", answers_},
           {"to_more", to_more_.Json()}});
  }

 private:
  absl::StatusOr<RedistributionResult> Search(const RedistributionRequest& request,
                                              int64_t nodes_max) const {
    return SearchRedistribution(
        request, by_bytes_ ? ByBytes(request, nodes_max) : BySeconds(request, nodes_max));
  }

  void MeasurePair(uint64_t seed) {
    const RedistributionRequest request = RandomRedistribution(seed, kLarge);
    const double before = ThreadSeconds();
    const absl::StatusOr<RedistributionResult> result = Search(request, options_.nodes_max);
    seconds_.push_back(ThreadSeconds() - before);
    if (!result.ok()) {
      ++unanswered_;
      return;
    }
    const Derivation& found = result->derivation;
    if (options_.verbose) {
      std::fprintf(stderr, "seed %llu: %.3f ms, %lld types\n%s",
                   static_cast<unsigned long long>(seed), seconds_.back() * 1e3,
                   static_cast<long long>(result->nodes), found.Text().c_str());
    }
    with_relay_ += std::ranges::any_of(found.steps(), [](const RedistributionStep& step) {
      return step.kind == StepKind::kRelay;
    });
    if (by_bytes_) comparison_.Add(request, found);
    if (found.origin() == DerivationOrigin::kBudget) CompareWithMore(seed, request, found);
  }

  // What a search that its budget has ended takes, to one with more.
  void CompareWithMore(uint64_t seed, const RedistributionRequest& request,
                       const Derivation& found) {
    const absl::StatusOr<RedistributionResult> more = Search(request, options_.more_nodes_max);
    CHECK_OK(more);
    const double cost = CostOf(found);
    const double least = CostOf(more->derivation);
    to_more_.Add(cost, least);
    answers_.push_back({{"seed", seed}, {"found", cost}, {"found_by_more", least}});
  }
  double CostOf(const Derivation& derivation) const {
    return by_bytes_ ? static_cast<double>(derivation.bytes()) : derivation.seconds();
  }

  const Options& options_;
  const bool by_bytes_;
  std::vector<double> seconds_;
  Comparison comparison_;
  int64_t unanswered_ = 0;  // the budget is spent before there is any path
  int64_t with_relay_ = 0;
  nlohmann::json answers_ = nlohmann::json::array();  // by the budget
  Ratios to_more_;
};

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
    const absl::StatusOr<RedistributionResult> result =
        SearchRedistribution(request, ByBytes(request, options.nodes_max));
    seconds.push_back(ThreadSeconds() - before);
    CHECK_OK(result);
    if (options.verbose && i == 0) std::fprintf(stderr, "%s", result->derivation.Text().c_str());
  }
  PrintTimes("4096 devices, by bytes", seconds);
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
  app.add_flag("--large-only", options.large_only, "Only the pairs on large meshes");
  app.add_flag("--verbose", options.verbose, "Each large pair's steps, to stderr");
  CLI11_PARSE(app, argc, argv);
  if (!options.large_only) {
    crossmesh::MeasureStudy(options);
    crossmesh::MeasureLargest(options);
    for (const bool no_relays : {false, true}) {
      crossmesh::Print(crossmesh::MeasureModelRedistribution(no_relays));
    }
  }
  for (const auto objective :
       {crossmesh::RedistributionObjective::kBytes, crossmesh::RedistributionObjective::kSeconds}) {
    crossmesh::LargePairs(options, objective).Measure();
  }
}
