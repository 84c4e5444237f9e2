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
#include <tuple>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr std::array<double, 5> kHaste = {1.5, 1.0, 0.5, 0.3, 0.1};

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
    absl::StatusOr<RedistributionStep> step = Priced(kind, change);
    CHECK_OK(step);
    if (!Join(*step)) steps_.push_back(*std::move(step));
  }
  std::vector<RedistributionStep> Finish() && { return std::move(steps_); }

 private:
  absl::StatusOr<RedistributionStep> Priced(StepKind kind, TypeChange change) const {
    absl::StatusOr<RedistributionStep> step = MakeStep(space_, kind, change, staging_);
    if (step.ok()) step->seconds = prices_.SecondsOf(*step);
    return step;
  }

  bool Join(const RedistributionStep& step) {
    if (steps_.empty() || steps_.back().kind != step.kind) return false;
    if (step.kind != StepKind::kSlice && step.kind != StepKind::kAllGather) return false;
    const RedistributionStep& last = steps_.back();
    absl::StatusOr<RedistributionStep> joined = Priced(step.kind, {last.before, step.after});
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

// One request's searches: one for each way to split axes into atoms.
class RequestSearch {
 public:
  RequestSearch(const RedistributionRequest& request, const RedistributionOptions& options)
      : request_(request), options_(options) {}

  absl::StatusOr<RedistributionResult> Run() {
    TryRelay();
    const std::vector<AtomSizes> ways = PrimeAtoms(request_, options_.atom_ways_max);
    for (size_t way = 0; way < ways.size(); ++way) {
      TryAtoms(ways[way], std::max<int64_t>(options_.nodes_max - nodes_, 0) /
                              static_cast<int64_t>(ways.size() - way));
    }
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

  void TryAtoms(const AtomSizes& sizes, int64_t nodes_max) {
    const auto types = std::make_shared<const TypeSpace>(request_, sizes);
    const std::optional<SearchSpace> space = SearchSpace::Create(*types);
    if (!space.has_value()) return;
    // Most searches end soon. Where one does not, a path that is found in haste leaves less to
    // look at.
    LayoutSearchOptions search_options = SearchOptions(
        options_.objective == RedistributionObjective::kBytes ? PathObjective::kBytes
                                                              : PathObjective::kSeconds);
    search_options.nodes_max = nodes_max / 8;
    if (Search(types, *space, search_options)) return;
    for (const double haste : kHaste) {
      search_options.haste = haste;
      Search(types, *space, search_options);
    }
    search_options.haste = 0;
    search_options.nodes_max = nodes_max / 2;
    if (!Search(types, *space, search_options)) budget_spent_ = true;
  }

  // Whether no path that is better than the best one so far is left.
  bool Search(const std::shared_ptr<const TypeSpace>& types, const SearchSpace& space,
              LayoutSearchOptions search_options) {
    const StepPrices prices(*types, options_.cost);
    if (best_.has_value()) search_options.upper = best_->cost;
    LayoutSearch search(space, prices, search_options);
    const std::optional<LayoutPath> path = search.Run();
    nodes_ += search.nodes();
    if (path.has_value()) {
      Offer(Derivation(types, StepsOf(space, prices, options_.staging, *path),
                       DerivationOrigin::kSearch));
    }
    return !search.budget_spent() && search_options.haste == 0;
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
      const std::optional<LayoutPath> path = LayoutSearch(*space, prices, search_options).Run();
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
