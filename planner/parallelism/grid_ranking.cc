#include "planner/parallelism/grid_ranking.h"

#include "common/base/format.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

std::string MemoryText(double bytes) { return FormatBytes(ByteCount(static_cast<int64_t>(bytes))); }

// All factorisations of a number over the axes, in the order of sizes.
class Factorisations {
 public:
  Factorisations(int64_t devices, const PerAxis<int64_t>& most) : most_(most) {
    for (int64_t divisor = 1; divisor <= devices; ++divisor) {
      if (devices % divisor == 0) divisors_.push_back(divisor);
    }
  }

  void ForEach(absl::FunctionRef<void(const Grid& grid)> visit) {
    Grid grid;
    Split(0, divisors_.back(), grid, visit);
  }

 private:
  void Split(int axis, int64_t left, Grid& grid, absl::FunctionRef<void(const Grid&)> visit) {
    int64_t& size = grid.sizes.values[axis];
    const int64_t most = most_.values[axis];
    if (axis == kGridAxisCount - 1) {
      size = left;
      if (left <= most) visit(grid);
      return;
    }
    for (const int64_t divisor : divisors_) {
      if (divisor > left || divisor > most) break;
      if (left % divisor != 0) continue;
      size = divisor;
      Split(axis + 1, left / divisor, grid, visit);
    }
  }

  const PerAxis<int64_t>& most_;
  std::vector<int64_t> divisors_;
};

// Of a grid that keeps to all rules but memory.
class MicrobatchSearch {
 public:
  // `products` must outlive it.
  MicrobatchSearch(const StepModel& step, const Grid& grid, int64_t memory_bytes_max,
                   ProductPrices& products)
      : step_(step),
        products_(products),
        memory_bytes_max_(static_cast<double>(memory_bytes_max)),
        shape_(ShapeOf(step.model(), step.training(), grid, 1)),
        least_{.grid = grid, .rule = GridRule::kMemory} {}

  void Run() {
    const int64_t given = step_.training().microbatch;
    if (given > 0) {
      Try(given);
      return;
    }
    // From the largest divisor to the smallest.
    const int64_t local = step_.training().batch / shape_.grid.sample_groups();
    int64_t divisor = 1;
    for (; divisor * divisor <= local && !is_done(); ++divisor) {
      if (local % divisor == 0) Try(local / divisor);
    }
    for (--divisor; divisor >= 1 && !is_done(); --divisor) {
      if (local % divisor == 0 && divisor * divisor != local) Try(divisor);
    }
  }

  // Of those that fit.
  const std::optional<RankedGrid>& best() const { return best_; }
  // Of all: what needs least.
  const RefusedGrid& least() const { return least_; }

 private:
  // Without a pipeline the largest that fits is the best: it gathers weights least often, behind
  // most, and products of more rows reach more of the peak. But for a device that overlap slows
  // more than it hides, and where products were measured, which may be slower with more rows.
  bool is_done() const {
    return best_ && shape_.grid.pipeline() == 1 && step_.device().overlap_slowdown < 2 &&
           step_.device().products.empty();
  }

  void Try(int64_t microbatch) {
    if (FirstFailure(step_.model(), step_.training(), shape_.grid, microbatch)) return;
    SetMicrobatch(step_.training(), microbatch, shape_);
    const double bytes = step_.Memory(shape_).total();
    if (least_.microbatch == 0 || bytes < least_.memory_bytes) {
      least_.microbatch = microbatch;
      least_.memory_bytes = bytes;
    }
    if (bytes > memory_bytes_max_) return;
    if (!once_.has_value()) once_ = step_.OnceInAStep(shape_);
    const StepPrice price = step_.Price(shape_, products_, *once_);
    const double seconds = price.seconds();
    const bool better =
        !best_ || std::tie(seconds, bytes, microbatch) <
                      std::tie(best_->seconds, best_->memory_bytes, best_->shape.microbatch);
    if (better) best_ = {shape_, price, seconds, bytes};
  }

  const StepModel& step_;
  ProductPrices& products_;
  std::optional<SharesOfStep> once_;
  const double memory_bytes_max_;
  GridShape shape_;  // with the microbatch that is tried
  std::optional<RankedGrid> best_;
  RefusedGrid least_;
};

int64_t MemoryLimit(const StepModel& step, const GridLimits& limits) {
  return limits.memory_bytes_max.value_or(step.device().memory_bytes);
}

// The changes of a training that need less memory, the cheapest first.
struct Change {
  std::string text;
  Training training;
};
std::vector<Change> ChangesThatSaveMemory(const Training& training) {
  std::vector<Change> changes;
  const auto add = [&](std::string text, const Training& changed) {
    changes.push_back({std::move(text), changed});
  };
  Training changed = training;
  if (training.activations == ActivationForm::kReplicated) {
    changed.activations = ActivationForm::kScattered;
    add("scattered activations", changed);
    changed = training;
  }
  if (training.recompute == Recompute::kNone && !training.flash_attention) {
    changed.recompute = Recompute::kSelective;
    add("selective recompute", changed);
    changed = training;
  }
  if (training.zero < 1) {
    changed.zero = 1;
    add("zero=1", changed);
    changed = training;
  }
  if (training.recompute != Recompute::kFull) {
    changed.recompute = Recompute::kFull;
    add("full recompute", changed);
    if (training.zero < 1) {
      changed.zero = 1;
      add("full recompute and zero=1", changed);
    }
    changed = training;
  }
  changed.recompute = Recompute::kFull;
  changed.zero = 3;
  if (training.zero < 3) add("full recompute and zero=3", changed);
  return changes;
}

std::string MemoryRefusal(const StepModel& step, const RefusedGrid& refused,
                          int64_t memory_bytes_max) {
  const std::string needs = absl::StrCat("needs ", MemoryText(refused.memory_bytes), " of ",
                                         MemoryText(static_cast<double>(memory_bytes_max)),
                                         " with a microbatch of ", refused.microbatch);
  for (const auto& [text, training] : ChangesThatSaveMemory(step.training())) {
    if (FirstFailure(step.model(), training, refused.grid, refused.microbatch)) continue;
    const GridShape shape = ShapeOf(step.model(), training, refused.grid, refused.microbatch);
    const double bytes = MemoryOf(step.model(), training, shape).total();
    if (bytes > static_cast<double>(memory_bytes_max)) continue;
    return absl::StrCat(needs, "; the nearest fix: ", text, " (", MemoryText(bytes), ")");
  }
  return absl::StrCat(needs, "; the nearest fix: ",
                      MemoryText(refused.memory_bytes - static_cast<double>(memory_bytes_max)),
                      " more, or a grid that cuts more");
}

// By keys apart: grids are too large to be moved again and again.
void SortByTime(std::vector<RankedGrid>& grids) {
  struct Key {
    double seconds;
    double memory_bytes;
    int axes;
    size_t index;
  };
  std::vector<Key> keys;
  keys.reserve(grids.size());
  for (const RankedGrid& grid : grids) {
    keys.push_back({grid.seconds, grid.memory_bytes, grid.shape.grid.axes_used(), keys.size()});
  }
  std::ranges::sort(keys, [&grids](const Key& left, const Key& right) {
    const auto left_key = std::tie(left.seconds, left.memory_bytes, left.axes);
    const auto right_key = std::tie(right.seconds, right.memory_bytes, right.axes);
    if (left_key != right_key) return left_key < right_key;
    return grids[left.index].shape.grid < grids[right.index].shape.grid;
  });
  // In place, circle by circle: a second list costs more than the sort.
  for (size_t first = 0; first < keys.size(); ++first) {
    if (keys[first].index == first) continue;
    const RankedGrid moved = grids[first];
    size_t at = first;
    while (keys[at].index != first) {
      const size_t from = std::exchange(keys[at].index, at);
      grids[at] = grids[from];
      at = from;
    }
    grids[at] = moved;
    keys[at].index = at;
  }
}

}  // namespace

std::vector<int64_t> GridRanking::CountsByRule() const {
  std::vector<int64_t> counts(kGridRuleCount, 0);
  for (const RefusedGrid& grid : refused) ++counts[static_cast<size_t>(grid.rule)];
  return counts;
}

const RefusedGrid* GridRanking::LeastMemory() const {
  const RefusedGrid* least = nullptr;
  for (const RefusedGrid& grid : refused) {
    if (grid.rule != GridRule::kMemory) continue;
    if (least == nullptr || grid.memory_bytes < least->memory_bytes) least = &grid;
  }
  return least;
}

GridRanking RankGrids(const StepModel& step, const GridLimits& limits) {
  GridRanking ranking{.memory_bytes_max = MemoryLimit(step, limits)};
  ProductPrices products(step.device());
  Factorisations grids(step.rates().devices(), limits.most);
  size_t count = 0;
  grids.ForEach([&count](const Grid&) { ++count; });
  ranking.feasible.reserve(count);
  grids.ForEach([&](const Grid& grid) {
    if (const auto rule = FirstFailure(step.model(), step.training(), grid)) {
      ranking.refused.push_back({.grid = grid, .rule = *rule});
      return;
    }
    MicrobatchSearch search(step, grid, ranking.memory_bytes_max, products);
    search.Run();
    if (search.best()) {
      ranking.feasible.push_back(*search.best());
    } else {
      ranking.refused.push_back(search.least());
    }
  });
  SortByTime(ranking.feasible);
  return ranking;
}

absl::StatusOr<RankedGrid> PriceGrid(const StepModel& step, const Grid& grid,
                                     const GridLimits& limits, bool over_memory) {
  if (grid.devices() != step.rates().devices()) {
    return absl::InvalidArgumentError(
        absl::StrCat("grid ", ToString(grid), ": expected sizes whose product is the ",
                     step.rates().devices(), " devices, found ", grid.devices()));
  }
  RETURN_IF_ERROR(CheckGrid(step.model(), step.training(), grid));
  const int64_t most = MemoryLimit(step, limits);
  ProductPrices products(step.device());
  MicrobatchSearch search(step, grid, most, products);
  search.Run();
  if (search.best()) return *search.best();
  const RefusedGrid& least = search.least();
  if (!over_memory) {
    return absl::ResourceExhaustedError(
        absl::StrCat("grid ", ToString(grid), ": ", MemoryRefusal(step, least, most)));
  }
  const GridShape shape = ShapeOf(step.model(), step.training(), grid, least.microbatch);
  const StepPrice price = step.Price(shape);
  return RankedGrid{shape, price, price.seconds(), least.memory_bytes};
}

absl::Status NoGridError(const StepModel& step, const GridRanking& ranking) {
  const RefusedGrid* const least = ranking.LeastMemory();
  if (least != nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("grids of ", step.rates().devices(), " devices: expected one that fits in ",
                     MemoryText(static_cast<double>(ranking.memory_bytes_max)),
                     ", found none: the least is ", MemoryText(least->memory_bytes), ", of ",
                     ToString(least->grid), " with a microbatch of ", least->microbatch));
  }
  const auto none = [&step](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("grids of ", step.rates().devices(),
                     " devices: expected one that keeps to all rules, found none; ", why...));
  };
  if (ranking.refused.empty()) return none("the limits of axes leave none");
  const std::vector<int64_t> counts = ranking.CountsByRule();
  std::vector<std::string> parts;
  for (int rule = 0; rule < kGridRuleCount; ++rule) {
    if (counts[rule] == 0) continue;
    parts.push_back(absl::StrCat(GridRuleName(static_cast<GridRule>(rule)), " ", counts[rule]));
  }
  // Rules are looked at in their order, so the grid that fails last keeps to most of them.
  const RefusedGrid& closest = *std::ranges::max_element(ranking.refused, {}, &RefusedGrid::rule);
  return none("refused by ", absl::StrJoin(parts, ", "), "; the closest is ",
              ToString(closest.grid), ": ",
              ExplainRefusal(step, closest, ranking.memory_bytes_max));
}

std::string ExplainRefusal(const StepModel& step, const RefusedGrid& refused,
                           int64_t memory_bytes_max) {
  if (refused.rule == GridRule::kMemory) return MemoryRefusal(step, refused, memory_bytes_max);
  return ExplainFailure(step.model(), step.training(), refused.grid, refused.rule);
}

}  // namespace crossmesh
