#include "tests/benchmark/pipeline_grid.h"

#include "common/base/check.h"
#include "common/base/table.h"
#include "planner/pipeline/bound.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/schedules/period_law.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/schedules/zero_bubble.h"
#include "planner/pipeline/search/schedule_search.h"
#include "planner/pipeline/timeline.h"
#include "tests/benchmark/pipeline_chain.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr double kEqual = 1e-9;  // gaps

int32_t OneOf(std::mt19937_64& random, std::initializer_list<int32_t> values) {
  return *(values.begin() + random() % values.size());
}

double GapOf(const absl::StatusOr<Schedule>& schedule, const PipelineProfile& profile,
             double bound) {
  CHECK_OK(schedule);
  const absl::StatusOr<OpTable> ops = OpTable::Create(*schedule, profile);
  CHECK_OK(ops);
  const absl::StatusOr<PipelineTimeline> run = SimulatePipeline(*ops, TransferModel::kLatency);
  CHECK_OK(run);
  return run->seconds / bound - 1;
}

double BoundOf(const PipelineProfile& profile, int32_t microbatches, BackwardForm form) {
  const absl::StatusOr<PipelineBound> bound =
      ComputePipelineBound(profile, microbatches, form, TransferModel::kLatency);
  CHECK_OK(bound);
  return bound->seconds();
}

double TimeOfSearch(const PipelineProfile& profile, int32_t microbatches, BackwardForm form) {
  const absl::StatusOr<SearchResult> found = SearchSchedules(profile, microbatches, {.form = form});
  CHECK_OK(found);
  return found->best().seconds;
}

// Sums of gaps, by way; the search is the last.
class Cell {
 public:
  explicit Cell(size_t ways) : sums_(ways) {}

  void Add(const std::vector<double>& gaps) {
    for (size_t i = 0; i < gaps.size(); ++i) sums_[i] += gaps[i];
    worst_ = std::max(worst_, gaps.back());
    ++count_;
  }
  std::string Mean(size_t way) const { return absl::StrFormat("%.2f %%", 100 * MeanOf(way)); }
  std::string Worst() const { return absl::StrFormat("%.1f %%", 100 * worst_); }
  bool IsBestLast() const {
    return MeanOf(sums_.size() - 1) <=
           *std::min_element(sums_.begin(), sums_.end() - 1) / count_ + kEqual;
  }

 private:
  double MeanOf(size_t way) const { return sums_[way] / count_; }

  std::vector<double> sums_;
  double worst_ = 0;
  double count_ = 0;
};

enum class SlowEdges : uint8_t { kAll, kEveryFourth, kNone };

PipelineProfile FullChain(std::mt19937_64& random, int32_t stages, SlowEdges slow,
                          double deviation) {
  PipelineProfile profile = RandomChain(random, stages, deviation, 0);
  const double all = 0.1 + 0.9 * static_cast<double>(random() >> 11) * 0x1p-53;
  for (size_t e = 0; e < profile.edges.size(); ++e) {
    const double seconds = slow == SlowEdges::kAll    ? all
                           : slow == SlowEdges::kNone ? 0
                           : e % 4 == 3               ? 0.6
                                                      : 0.02;
    profile.edges[e].forward_seconds = profile.edges[e].backward_seconds = seconds;
  }
  return profile;
}

// How far 1F1B, eager 1F1B, the smallest windows and the search are above the bound.
std::vector<double> FullGaps(int64_t seed, SlowEdges slow, double deviation) {
  std::mt19937_64 random(seed);
  const int32_t stages = OneOf(random, {4, 8, 16, 32, 64});
  const int32_t microbatches = OneOf(random, {8, 16, 32, 64, 128});
  PipelineProfile profile = FullChain(random, stages, slow, deviation);
  const double bound = BoundOf(profile, microbatches, BackwardForm::kFull);
  const auto windows = SmallestWindows(profile, BackwardForm::kFull, LongestStageSeconds(profile));
  CHECK_OK(windows);
  std::vector<double> gaps = {
      GapOf(MakeOneForwardOneBackward(stages, microbatches), profile, bound),
      GapOf(MakeEagerOneForwardOneBackward(stages, microbatches), profile, bound),
      GapOf(MakeWindowOrder(*windows, microbatches), profile, bound)};
  for (StageIndex s = 0; s < stages; ++s) {
    profile.rank_bytes_max[s] = ByteCount(std::max(2 * (stages - s) - 1, (*windows)[s]));
  }
  gaps.push_back(TimeOfSearch(profile, microbatches, BackwardForm::kFull) / bound - 1);
  return gaps;
}

bool MeasureFull(int64_t instances) {
  TextTable table({"TRANSFERS", "STAGES", "1F1B>", "EAGER>", "WINDOWS>", "AUTO>", "WORST>"});
  bool good = true;
  const std::pair<SlowEdges, const char*> kinds[] = {{SlowEdges::kAll, "all edges"},
                                                     {SlowEdges::kEveryFourth, "every fourth"},
                                                     {SlowEdges::kNone, "none"}};
  for (const auto& [slow, name] : kinds) {
    for (const double deviation : {0.0, 0.3}) {
      Cell cell(4);
      for (int64_t seed = 0; seed < instances; ++seed) cell.Add(FullGaps(seed, slow, deviation));
      table.AddRow({name, deviation == 0 ? "equal" : "+-30 %", cell.Mean(0), cell.Mean(1),
                    cell.Mean(2), cell.Mean(3), cell.Worst()});
      good = good && cell.IsBestLast();
    }
  }
  std::printf("%s\n", table.ToString().c_str());
  return good;
}

// The best of the orders that hold the first microbatches as long as memory lasts, and delay
// gradients of the weights in what is left of it.
double DelayedGap(const PipelineProfile& profile, int32_t microbatches, int32_t held,
                  double bound) {
  const auto stages = static_cast<int32_t>(profile.stages.size());
  double least = std::numeric_limits<double>::infinity();
  for (int32_t more = 0; more < held; ++more) {
    std::vector<DelayedStage> delayed(stages);
    for (StageIndex s = 0; s < stages; ++s) {
      delayed[s].leading = std::min(held, stages - s + more);
      delayed[s].delay = held - delayed[s].leading;
    }
    least = std::min(least, GapOf(MakeDelayedOrder(delayed, microbatches), profile, bound));
  }
  return least;
}

// How far ZB-H1, delayed gradients and the search are above the bound; `transfer` is a part of what
// a stage takes for a microbatch.
std::vector<double> SplitGaps(int64_t seed, double transfer, double deviation, int32_t half_times) {
  std::mt19937_64 random(seed);
  const int32_t stages = OneOf(random, {4, 8, 16});
  const int32_t microbatches = stages * OneOf(random, {2, 3, 4});
  PipelineProfile profile = RandomChain(random, stages, deviation, 3 * transfer);
  const int32_t held = stages * half_times / 2;
  std::ranges::fill(profile.rank_bytes_max, ByteCount(held));
  const double bound = BoundOf(profile, microbatches, BackwardForm::kSplit);
  return {GapOf(MakeZeroBubbleH1(stages, microbatches), profile, bound),
          DelayedGap(profile, microbatches, held, bound),
          TimeOfSearch(profile, microbatches, BackwardForm::kSplit) / bound - 1};
}

bool MeasureSplit(int64_t instances) {
  TextTable table({"TRANSFERS", "STAGES", "MEMORY>", "ZB-H1>", "DELAYED>", "AUTO>", "WORST>"});
  bool good = true;
  const std::pair<double, double> kinds[] = {{0, 0}, {0, 0.3}, {0.034, 0.3}, {0.14, 0.3}};
  for (const auto& [transfer, deviation] : kinds) {
    for (const int32_t half_times : {2, 3, 4}) {
      Cell cell(3);
      for (int64_t seed = 0; seed < instances; ++seed) {
        cell.Add(SplitGaps(seed, transfer, deviation, half_times));
      }
      table.AddRow({absl::StrFormat("%g of a stage", transfer), deviation == 0 ? "equal" : "+-30 %",
                    absl::StrFormat("%g x 1F1B's", half_times / 2.0), cell.Mean(0), cell.Mean(1),
                    cell.Mean(2), cell.Worst()});
      good = good && cell.IsBestLast();
    }
  }
  std::printf("%s\n", table.ToString().c_str());
  return good;
}

}  // namespace

bool MeasureGrids(int64_t instances) {
  const bool full = MeasureFull(instances), split = MeasureSplit(instances);
  return full && split;
}

}  // namespace crossmesh
