// How near the search for pipeline schedules comes to its bound, and how long it takes on one core:
// 64 stages, 512 microbatches, times of ops up to 20 % either way, transfers of 0.3 of an op,
// memory for one and a half times what 1F1B holds, of its fullest stage on every rank or of each
// stage on its own; transfers share nothing, or the ports of their ranks. Then how near it comes to
// the least time on pipelines that are small enough for an exact search; then how it stands beside
// other schedules on grids of pipelines. Processor time of the one thread. Prints tables; exits
// with 1 when another schedule is nearer to the bound.

#include "common/base/check.h"
#include "common/base/table.h"
#include "planner/pipeline/profile.h"
#include "planner/pipeline/search/schedule_search.h"
#include "planner/pipeline/search/testing/exact_schedule.h"
#include "planner/pipeline/transfer_model.h"
#include "tests/benchmark/measure.h"
#include "tests/benchmark/pipeline_chain.h"
#include "tests/benchmark/pipeline_grid.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr int64_t kFirstAnswerOps = 1;  // one schedule is looked at whatever the budget
constexpr int64_t kExactNodesMax = 10'000'000;

struct Options {
  int64_t instances = 8;
  int64_t small_instances = 1000;
  int64_t grid_instances = 42;
  int32_t stages = 64;
  int32_t microbatches = 512;
  std::string transfer_model = "latency";
};

std::string FormName(BackwardForm form) { return form == BackwardForm::kFull ? "full" : "split"; }

struct Measured {
  double gap = 0;
  double seconds = 0;
};

Measured Search(const PipelineProfile& profile, int32_t microbatches,
                const SearchOptions& options) {
  const double begin = ThreadSeconds();
  const absl::StatusOr<SearchResult> found = SearchSchedules(profile, microbatches, options);
  CHECK_OK(found);
  return {found->best().gap, ThreadSeconds() - begin};
}

// With memory for half as much again as 1F1B holds, on each rank or where it holds the most.
PipelineProfile LargeChain(const Options& options, int64_t seed, bool is_of_each) {
  std::mt19937_64 random(seed);
  PipelineProfile profile = RandomChain(random, options.stages, 0.2, 0.3);
  AddPortsOfRanks(profile);
  for (StageIndex s = 0; s < options.stages; ++s) {
    const int32_t held = options.stages - (is_of_each ? s : 0);  // by 1F1B
    profile.rank_bytes_max[s] = ByteCount(held * 3 / 2);
  }
  return profile;
}

void MeasureLarge(const Options& options) {
  const TransferModel model =
      options.transfer_model == "ports" ? TransferModel::kPorts : TransferModel::kLatency;
  TextTable table({"BACKWARD", "MEMORY", "SEED>", "FIRST>", "GAP>", "BEST>", "GAP>"});
  for (const BackwardForm form : {BackwardForm::kFull, BackwardForm::kSplit}) {
    for (const bool is_of_each : {false, true}) {
      for (int64_t seed = 1; seed <= options.instances; ++seed) {
        const PipelineProfile profile = LargeChain(options, seed, is_of_each);
        const Measured first = Search(profile, options.microbatches,
                                      {.form = form, .model = model, .ops_max = kFirstAnswerOps});
        const Measured best = Search(profile, options.microbatches, {.form = form, .model = model});
        table.AddRow({FormName(form), is_of_each ? "of each stage" : "of the fullest",
                      absl::StrCat(seed), absl::StrFormat("%.0f ms", 1e3 * first.seconds),
                      absl::StrFormat("%.2f %%", 100 * first.gap),
                      absl::StrFormat("%.0f ms", 1e3 * best.seconds),
                      absl::StrFormat("%.2f %%", 100 * best.gap)});
      }
    }
  }
  std::printf("%s\n", table.ToString().c_str());
}

void MeasureSmall(const Options& options) {
  TextTable table({"BACKWARD", "CASES>", "MEAN>", "WORST>", "SEED>"});
  for (const BackwardForm form : {BackwardForm::kFull, BackwardForm::kSplit}) {
    double sum = 0;
    std::pair<double, int64_t> worst;  // and its seed
    for (int64_t seed = 0; seed < options.small_instances; ++seed) {
      std::mt19937_64 random(seed);
      const auto stages = static_cast<int32_t>(1 + random() % 3);
      const auto microbatches = static_cast<int32_t>(2 + random() % 5);
      const double deviation = random() % 2 == 0 ? 0 : 0.3;
      const double transfer_seconds = static_cast<double>(random() % 5) / 4;
      PipelineProfile profile = RandomChain(random, stages, deviation, transfer_seconds);
      const auto windows = static_cast<int64_t>(stages * (2 + random() % 4) / 2);
      std::ranges::fill(profile.rank_bytes_max, ByteCount(std::max<int64_t>(windows, 1)));
      const absl::StatusOr<ExactSchedule> exact =
          FindExactSchedule(profile, microbatches, form, kExactNodesMax);
      const absl::StatusOr<SearchResult> found =
          SearchSchedules(profile, microbatches, {.form = form});
      CHECK_OK(exact);
      CHECK_OK(found);
      const double ratio = found->best().seconds / exact->seconds;
      sum += ratio;
      worst = std::max(worst, {ratio, seed});
    }
    table.AddRow({FormName(form), absl::StrCat(options.small_instances),
                  absl::StrFormat("%.5f", sum / static_cast<double>(options.small_instances)),
                  absl::StrFormat("%.4f", worst.first), absl::StrCat(worst.second)});
  }
  std::printf("%s", table.ToString().c_str());
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  crossmesh::Options options;
  CLI::App app("How near the search for pipeline schedules comes to its bound, and how fast it is");
  app.add_option("--instances", options.instances, "Large pipelines of each kind")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--small-instances", options.small_instances, "Small pipelines of each form")
      ->check(CLI::PositiveNumber);
  app.add_option("--grid-instances", options.grid_instances, "Pipelines in each cell of the grids")
      ->check(CLI::PositiveNumber);
  app.add_option("--stages", options.stages, "Of the large pipelines")->check(CLI::PositiveNumber);
  app.add_option("--microbatches", options.microbatches, "Of the large pipelines")
      ->check(CLI::PositiveNumber);
  app.add_option("--transfer-model", options.transfer_model, "Of the large pipelines")
      ->check(CLI::IsMember({"latency", "ports"}));
  CLI11_PARSE(app, argc, argv);
  crossmesh::MeasureLarge(options);
  crossmesh::MeasureSmall(options);
  return crossmesh::MeasureGrids(options.grid_instances) ? 0 : 1;
}
