#include "planner/redistribute/redistribution_search.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/layout_search.h"
#include "planner/redistribute/reduce_then_relay.h"
#include "planner/redistribute/search_space.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The parts of the budget of a first search, and of each one in haste.
constexpr int64_t kStartShare = 8;
constexpr int64_t kHasteShare = 10;
// Each is best for some requests. The first one ends by itself, with some path.
constexpr std::array<SearchHaste, 5> kHaste = {{
    {.beam = 64, .followers = 2, .weight = 3, .disorder = 1},
    {.beam = 24, .followers = 4, .weight = 3, .disorder = 0.1},
    {.beam = 8, .followers = 8, .weight = 1, .disorder = 0.3},
    {.beam = 8, .followers = 4, .weight = 2, .disorder = 0},
    {.weight = 3},
}};

struct Candidate {
  PathCost cost;
  Derivation derivation;
};

PathCost CostOf(const Derivation& derivation, RedistributionObjective objective) {
  return {.objective = objective == RedistributionObjective::kBytes
                           ? static_cast<double>(derivation.bytes())
                           : derivation.seconds(),
          .bytes = derivation.bytes(),
          .communicating = derivation.communicating_steps(),
          .steps = static_cast<int32_t>(derivation.steps().size())};
}

// Makes the steps of a path. Slices in a row, and gathers, are one step where that costs no more.
class StepChain {
 public:
  StepChain(const TypeSpace& space, const StepPrices& prices, StepStaging staging)
      : space_(space), prices_(prices), staging_(staging) {}

  void Append(StepKind kind, TypeChange change) {
    absl::StatusOr<RedistributionStep> step = Priced(kind, change, steps_.size());
    CHECK_OK(step);
    if (!Join(*step)) steps_.push_back(*std::move(step));
  }
  std::vector<RedistributionStep> Finish() && { return std::move(steps_); }

 private:
  // As the step of that number. A slice goes with the step after it, which is no collective then.
  absl::StatusOr<RedistributionStep> Priced(StepKind kind, TypeChange change, size_t number) const {
    absl::StatusOr<RedistributionStep> step = MakeStep(space_, kind, change, staging_);
    if (!step.ok()) return step;
    if (number > 0 && steps_[number - 1].kind == StepKind::kSlice) {
      step->seconds = prices_.SecondsOf(*step);
    } else {
      prices_.Price(*step);
    }
    return step;
  }

  bool Join(const RedistributionStep& step) {
    if (steps_.empty() || steps_.back().kind != step.kind) return false;
    if (step.kind != StepKind::kSlice && step.kind != StepKind::kAllGather) return false;
    const RedistributionStep& last = steps_.back();
    absl::StatusOr<RedistributionStep> joined =
        Priced(step.kind, {last.before, step.after}, steps_.size() - 1);
    if (!joined.ok() || joined->bytes_received > last.bytes_received + step.bytes_received ||
        joined->seconds > last.seconds + step.seconds) {
      return false;
    }
    steps_.back() = *std::move(joined);
    return true;
  }

  const TypeSpace& space_;
  const StepPrices& prices_;
  const StepStaging staging_;
  std::vector<RedistributionStep> steps_;
};

std::vector<RedistributionStep> StepsOf(const SearchSpace& space, const StepPrices& prices,
                                        StepStaging staging, const LayoutPath& path) {
  StepChain chain(space.types(), prices, staging);
  PackedType type = space.source();
  for (const Move& move : path.moves) {
    chain.Append(move.kind, {space.Unpack(type), space.Unpack(move.after)});
    type = move.after;
  }
  return std::move(chain).Finish();
}

// A way to split axes into atoms.
struct Way {
  Way(std::shared_ptr<const TypeSpace> type_space, SearchSpace search_space,
      const RedistributionOptions& options)
      : types(std::move(type_space)),
        space(std::move(search_space)),
        prices(*types, options.cost),
        estimate(space, prices,
                 options.objective == RedistributionObjective::kBytes ? PathObjective::kBytes
                                                                      : PathObjective::kSeconds) {}

  std::shared_ptr<const TypeSpace> types;
  SearchSpace space;
  StepPrices prices;
  PathEstimate estimate;
  std::optional<LayoutSearch> search;  // that may go on
};

// One request's searches: some for each way to split axes into atoms.
class RequestSearch {
 public:
  RequestSearch(const RedistributionRequest& request, const RedistributionOptions& options)
      : request_(request), options_(options) {}

  absl::StatusOr<RedistributionResult> Run() {
    TryRelay();
    Start();
    if (!open_.empty()) SearchInHaste(*open_.front());
    Finish();
    if (!best_.has_value()) return Refusal();
    Derivation best = std::move(best_->derivation);
    const bool at_bound =
        options_.objective == RedistributionObjective::kBytes && best.bytes() == best.bound_bytes();
    if (budget_spent_ && !at_bound) {
      best = best.WithOrigin(DerivationOrigin::kBudget);
    }
    return RedistributionResult{std::move(best), nodes_};
  }

 private:
  void Offer(Derivation derivation) {
    if (!Fits(derivation)) return;
    const PathCost cost = CostOf(derivation, options_.objective);
    if (!best_.has_value() || cost < best_->cost) best_.emplace(cost, std::move(derivation));
  }

  bool Fits(const Derivation& derivation) const {
    return derivation.peak_live_bytes() <= options_.live_bytes_max.value_or(INT64_MAX) &&
           derivation.peak_local_bytes() <= options_.local_bytes_max.value_or(INT64_MAX);
  }

  void TryRelay() {
    const auto space = std::make_shared<const TypeSpace>(request_, NeededAtoms(request_));
    const std::optional<SearchSpace> searchable = SearchSpace::Create(*space);
    if (searchable.has_value() && !options_.relay) return;
    Derivation relay = ReduceThenRelay(
        space, options_.cost, options_.staging,
        searchable.has_value() ? DerivationOrigin::kSearch : DerivationOrigin::kUneven);
    least_live_bytes_ = relay.peak_live_bytes();
    Offer(std::move(relay));
  }

  LayoutSearchOptions SearchOptions(PathObjective objective) const {
    return {.objective = objective,
            .live_bytes_max = options_.live_bytes_max.value_or(INT64_MAX),
            .local_bytes_max = options_.local_bytes_max.value_or(INT64_MAX),
            .staging_bytes = options_.staging.bytes,
            .relay = options_.relay,
            .nodes_max = options_.nodes_max};
  }

  // Most searches end soon.
  void Start() {
    const std::vector<AtomSizes> ways = PrimeAtoms(request_, options_.atom_ways_max);
    for (const AtomSizes& sizes : ways) {
      const auto types = std::make_shared<const TypeSpace>(request_, sizes);
      std::optional<SearchSpace> space = SearchSpace::Create(*types);
      if (!space.has_value()) continue;
      auto way = std::make_unique<Way>(types, *std::move(space), options_);
      LayoutSearchOptions search_options = SearchOptions(Objective());
      search_options.nodes_max =
          std::min(options_.nodes_max / kStartShare / static_cast<int64_t>(ways.size()), Left());
      if (best_.has_value()) search_options.upper = best_->cost;
      way->search.emplace(way->space, way->prices, way->estimate, search_options);
      Take(*way, *way->search, way->search->Run(), 0);
      if (way->search->budget_spent()) open_.push_back(std::move(way));
    }
  }

  // Where one does not, a path that is found in haste leaves less to look at. Ways differ little.
  void SearchInHaste(Way& way) {
    LayoutSearchOptions search_options = SearchOptions(Objective());
    search_options.ties = false;
    for (const SearchHaste& haste : kHaste) {
      search_options.haste = haste;
      search_options.nodes_max = best_.has_value() ? options_.nodes_max / kHasteShare : INT64_MAX;
      if (best_.has_value()) search_options.upper = best_->cost;
      LayoutSearch search(way.space, way.prices, way.estimate, search_options);
      Take(way, search, search.Run(), 0);
    }
  }

  void Finish() {
    for (size_t i = 0; i < open_.size(); ++i) {
      Way& way = *open_[i];
      const int64_t before = way.search->nodes();
      const int64_t nodes = Left() / static_cast<int64_t>(open_.size() - i);
      Take(way, *way.search,
           way.search->GoOn(nodes, best_.has_value() ? std::optional(best_->cost) : std::nullopt),
           before);
      if (way.search->budget_spent()) budget_spent_ = true;
    }
  }

  void Take(const Way& way, const LayoutSearch& search, const std::optional<LayoutPath>& path,
            int64_t nodes_before) {
    nodes_ += search.nodes() - nodes_before;
    if (!path.has_value()) return;
    Offer(Derivation(way.types, StepsOf(way.space, way.prices, options_.staging, *path),
                     DerivationOrigin::kSearch));
  }

  int64_t Left() const { return std::max<int64_t>(options_.nodes_max - nodes_, 0); }
  PathObjective Objective() const {
    return options_.objective == RedistributionObjective::kBytes ? PathObjective::kBytes
                                                                 : PathObjective::kSeconds;
  }

  absl::Status Refusal() {
    bool is_least = true;
    for (const AtomSizes& sizes : PrimeAtoms(request_, options_.atom_ways_max)) {
      const TypeSpace types(request_, sizes);
      const std::optional<SearchSpace> space = SearchSpace::Create(types);
      if (!space.has_value()) continue;
      LayoutSearchOptions search_options = SearchOptions(PathObjective::kPeakLiveBytes);
      search_options.live_bytes_max = INT64_MAX;
      search_options.nodes_max = options_.nodes_max;
      const StepPrices prices(types, options_.cost);
      PathEstimate estimate(*space, prices, search_options.objective);
      const std::optional<LayoutPath> path =
          LayoutSearch(*space, prices, estimate, search_options).Run();
      is_least &= path.has_value() && path->is_best;
      if (!path.has_value()) continue;
      const int64_t peak =
          std::max(static_cast<int64_t>(path->cost.objective), types.LocalBytes(types.source()));
      least_live_bytes_ = std::min(least_live_bytes_.value_or(INT64_MAX), peak);
    }
    if (!least_live_bytes_.has_value() || least_live_bytes_ <= options_.live_bytes_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("redistribution: expected a path within ", options_.nodes_max, " nodes and ",
                       options_.local_bytes_max.value_or(INT64_MAX), " local bytes, found none"));
    }
    return absl::ResourceExhaustedError(
        absl::StrCat("cap on live bytes: expected at least ", is_least ? "" : "some limit up to ",
                     *least_live_bytes_, ", found ", options_.live_bytes_max.value_or(0)));
  }

  const RedistributionRequest& request_;
  const RedistributionOptions& options_;
  std::optional<Candidate> best_;
  std::vector<std::unique_ptr<Way>> open_;  // whose searches have not ended
  std::optional<int64_t> least_live_bytes_;
  int64_t nodes_ = 0;
  bool budget_spent_ = false;
};

absl::Status ValidateLimit(absl::string_view name, const std::optional<int64_t>& limit) {
  if (!limit.has_value() || *limit >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": expected at least 1 byte, found ", *limit));
}

}  // namespace

absl::StatusOr<RedistributionResult> SearchRedistribution(const RedistributionRequest& request,
                                                          const RedistributionOptions& options) {
  RETURN_IF_ERROR(Validate(request));
  RETURN_IF_ERROR(ValidateLimit("cap on live bytes", options.live_bytes_max));
  RETURN_IF_ERROR(ValidateLimit("cap on a local array", options.local_bytes_max));
  return RequestSearch(request, options).Run();
}

}  // namespace crossmesh
