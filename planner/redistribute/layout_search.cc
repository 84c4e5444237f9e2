#include "planner/redistribute/layout_search.h"

#include "common/base/check.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

namespace crossmesh {
namespace {

// Types next to the source from which relays are looked at. Each costs the devices.
constexpr size_t kRelaysMax = 6;
// Of a path that is found in haste.
constexpr int kStepsInHaste = 16;
// Of seconds, which are sums in any order.
constexpr double kRounding = 1 - 1e-9;

}  // namespace

bool LayoutSearch::Entry::operator<(const Entry& other) const {
  return std::tuple(estimate, bytes, communicating, disorder, -done, node) >
         std::tuple(other.estimate, other.bytes, other.communicating, other.disorder, -other.done,
                    other.node);
}

LayoutSearch::LayoutSearch(const SearchSpace& space, const StepPrices& prices,
                           PathEstimate& estimate, const LayoutSearchOptions& options)
    : space_(space),
      prices_(prices),
      move_prices_(space, prices),
      options_(options),
      estimate_(estimate),
      upper_(options.upper) {}

int64_t LayoutSearch::ElementsAfter(const Node& from, const Move& move) const {
  switch (move.kind) {
    case StepKind::kAllToAll:
    case StepKind::kPermute:
    case StepKind::kAllReduce:
      return from.local_elements;
    case StepKind::kSlice:
    case StepKind::kAllGather:
    case StepKind::kReduceScatter:
    case StepKind::kRelay:
      break;
  }
  return space_.LocalElements(move.after);
}

std::optional<PathCost> LayoutSearch::CostAfter(const Node& from, const Move& move) const {
  const int64_t item = space_.types().item_bytes();
  const int64_t before = from.local_elements;
  int64_t group = 1;
  for (int atom = 0; atom < space_.atoms(); ++atom) {
    if (from.type[atom] != move.after[atom]) group *= space_.size(atom);
  }
  const int64_t after = ElementsAfter(from, move);
  const bool communicates = move.kind != StepKind::kSlice;
  const int64_t live = (before + after) * item + (communicates ? options_.staging_bytes : 0);
  if (live > options_.live_bytes_max || after * item > options_.local_bytes_max) {
    return std::nullopt;
  }
  PathCost cost = from.cost;
  cost.bytes += ReceivedElements(move.kind, before, group) * item;
  cost.communicating += communicates ? 1 : 0;
  ++cost.steps;
  switch (options_.objective) {
    case PathObjective::kBytes:
      cost.objective = static_cast<double>(cost.bytes);
      break;
    case PathObjective::kSeconds:
      cost.objective += move_prices_.Seconds(from.type, move, before * item, FollowsSlice(from));
      break;
    case PathObjective::kPeakLiveBytes:
      cost.objective = std::max(cost.objective, static_cast<double>(live));
      break;
  }
  return cost;
}

bool LayoutSearch::HasSums(const PackedType& type) const {
  for (int atom = 0; atom < space_.atoms(); ++atom) {
    if (type[atom] == kPartialCode && space_.destination()[atom] != kPartialCode) return true;
  }
  return false;
}

// What the whole path costs, at least; or probably: what is exchanged is exchanged at about the
// size that the local array has now.
double LayoutSearch::RankOf(const PackedType& type, const PathCost& cost,
                            const PathRemainder& remainder) const {
  const double least = cost.objective + options_.haste.weight * remainder.objective;
  if (options_.haste.disorder == 0) return least;
  const int64_t bytes = space_.LocalElements(type) * space_.types().item_bytes();
  const double once = options_.objective == PathObjective::kSeconds
                          ? prices_.LeastSeconds(bytes, 1, 1)
                          : static_cast<double>(bytes);
  return least + options_.haste.disorder * once * remainder.disorder;
}

bool LayoutSearch::IsTooMuch(const PathCost& cost, const PathRemainder& remainder) const {
  if (!upper_.has_value()) return false;
  if (!options_.ties && cost.objective + remainder.objective >= upper_->objective * kRounding) {
    return true;
  }
  return PathCost{.objective = cost.objective + remainder.objective,
                  .bytes = cost.bytes + remainder.bytes,
                  .communicating = cost.communicating + remainder.communicating,
                  .steps = cost.steps} > *upper_;
}

void LayoutSearch::Push(int32_t number, const PathRemainder& remainder) {
  const Node& node = nodes_[number];
  open_.push({.estimate = RankOf(node.type, node.cost, remainder),
              .bytes = node.cost.bytes + remainder.bytes,
              .communicating = node.cost.communicating + remainder.communicating,
              .disorder = remainder.disorder,
              .done = node.cost.objective,
              .node = number});
}

void LayoutSearch::Reach(int32_t from, const Move& move, const PathCost& cost) {
  if (IsTooMuch(cost, {})) return;
  const auto known = known_.find(move.after);
  if (known != known_.end() && cost >= nodes_[known->second].cost) return;
  const PathRemainder& remainder = estimate_.Of(move.after);
  if (!IsTooMuch(cost, remainder)) AddNew(from, move, cost, remainder);
}

// Nothing where the type is known to cost no more.
std::optional<int32_t> LayoutSearch::Add(int32_t from, const Move& move, const PathCost& cost) {
  const auto known = known_.find(move.after);
  if (known != known_.end() && cost >= nodes_[known->second].cost) return std::nullopt;
  return AddNew(from, move, cost, estimate_.Of(move.after));
}

int32_t LayoutSearch::AddNew(int32_t from, const Move& move, const PathCost& cost,
                             const PathRemainder& remainder) {
  const auto [found, added] = known_.try_emplace(move.after, static_cast<int32_t>(nodes_.size()));
  const Node reached{move.after, from, move.kind, cost, ElementsAfter(nodes_[from], move), false};
  if (added) {
    nodes_.push_back(reached);
  } else {
    nodes_[found->second] = reached;
  }
  const int32_t number = found->second;
  if (move.after == space_.destination() && (!upper_.has_value() || cost < *upper_)) {
    upper_ = cost;
    goal_ = number;
  }
  if (!IsTooMuch(cost, remainder)) Push(number, remainder);
  return number;
}

// Where a gather leads to the destination: what is wanted nowhere, and cuts now, cuts there too.
PackedType LayoutSearch::BeforeGather(const PackedType& type) const {
  PackedType shared = space_.destination();
  DigitSet blocked;
  for (int atom = 0; atom < space_.atoms(); ++atom) {
    if (shared[atom] >= kFirstDigit) blocked |= space_.conflicts(shared[atom] - kFirstDigit);
  }
  for (int atom = 0; atom < space_.atoms(); ++atom) {
    if (shared[atom] != kReplicatedCode || type[atom] == kReplicatedCode) continue;
    for (const int digit : space_.digits_of_size(space_.size(atom))) {
      if (blocked[digit]) continue;
      shared[atom] = static_cast<uint8_t>(kFirstDigit + digit);
      blocked |= space_.conflicts(digit);
      break;
    }
  }
  return shared;
}

// About what a relay from there takes, to the destination or to where a gather leads there: one
// message for each block that a device needs.
double LayoutSearch::RankForRelay(const PackedType& type, const PathCost& cost) const {
  if (options_.objective != PathObjective::kSeconds) return cost.objective;
  double least = std::numeric_limits<double>::infinity();
  for (const PackedType& after : {space_.destination(), BeforeGather(type)}) {
    DigitSet wanted;
    for (int atom = 0; atom < space_.atoms(); ++atom) {
      if (after[atom] >= kFirstDigit) wanted.set(after[atom] - kFirstDigit);
    }
    double blocks = 1;
    for (int atom = 0; atom < space_.atoms(); ++atom) {
      if (type[atom] < kFirstDigit || wanted[type[atom] - kFirstDigit]) continue;
      blocks *= static_cast<double>(space_.size(atom));
    }
    least = std::min(least, prices_.LeastSeconds(0, 1, std::max(blocks - 1, 1.0)) +
                                estimate_.Of(after).objective);
  }
  return cost.objective + least;
}

// From the source, and from the types next to it from which they seem best. Estimates are of paths
// without relays, and do not leave any of these out.
void LayoutSearch::ReachByRelays() {
  if (HasSums(space_.source())) return;
  ReachByRelaysFrom(0);
  // What can be sliced as wanted is, and only then other steps are looked at.
  if (const std::vector<int32_t> next = ReachForRelays(0); next.size() == 1) {
    ReachForRelays(next.front());
  }
}

std::vector<int32_t> LayoutSearch::ReachForRelays(int32_t from) {
  moves_.clear();
  const PackedType type = nodes_[from].type;
  AppendMoves(MoveState(space_, type), moves_);
  std::vector<std::pair<double, size_t>> ranked;
  for (size_t i = 0; i < moves_.size(); ++i) {
    const std::optional<PathCost> cost = CostAfter(nodes_[from], moves_[i]);
    if (cost.has_value()) ranked.emplace_back(RankForRelay(moves_[i].after, *cost), i);
  }
  const size_t kept = std::min(ranked.size(), kRelaysMax);
  std::ranges::partial_sort(ranked, ranked.begin() + static_cast<std::ptrdiff_t>(kept));
  std::vector<int32_t> next;
  for (size_t i = 0; i < kept; ++i) {
    const Move& move = moves_[ranked[i].second];
    const std::optional<int32_t> reached = Add(from, move, *CostAfter(nodes_[from], move));
    if (!reached.has_value()) continue;
    ReachByRelaysFrom(*reached);
    next.push_back(*reached);
  }
  return next;
}

// Straight to the destination, or to where a gather leads there: then less goes over slow links.
void LayoutSearch::ReachByRelaysFrom(int32_t number) {
  const PackedType type = nodes_[number].type;
  const PackedType shared = BeforeGather(type);
  ReachByRelay(number, space_.destination());
  if (shared != space_.destination() && shared != type) ReachByRelay(number, shared);
}

void LayoutSearch::ReachByRelay(int32_t from, const PackedType& after) {
  const absl::StatusOr<RedistributionStep> step = MakeStep(
      space_.types(), StepKind::kRelay, {space_.Unpack(nodes_[from].type), space_.Unpack(after)},
      {.bytes = options_.staging_bytes});
  CHECK_OK(step);
  if (step->live_bytes > options_.live_bytes_max ||
      space_.LocalElements(after) * space_.types().item_bytes() > options_.local_bytes_max) {
    return;
  }
  PathCost cost = nodes_[from].cost;
  cost.bytes += step->bytes_received;
  ++cost.communicating;
  cost.steps += 2;  // where it costs the same, a collective is what executors do best
  switch (options_.objective) {
    case PathObjective::kBytes:
      cost.objective = static_cast<double>(cost.bytes);
      break;
    case PathObjective::kSeconds:
      cost.objective += prices_.SecondsOf(*step) / kRounding;
      break;
    case PathObjective::kPeakLiveBytes:
      cost.objective = std::max(cost.objective, static_cast<double>(step->live_bytes));
      break;
  }
  Reach(from, {StepKind::kRelay, after}, cost);
}

void LayoutSearch::Expand(int32_t number) {
  nodes_[number].closed = true;
  moves_.clear();
  const PackedType type = nodes_[number].type;
  AppendMoves(MoveState(space_, type), moves_);
  looked_at_ += static_cast<int64_t>(moves_.size());
  for (const Move& move : moves_) {
    const std::optional<PathCost> cost = CostAfter(nodes_[number], move);
    if (cost.has_value()) Reach(number, move, *cost);
  }
}

std::vector<int32_t> LayoutSearch::NextLayer(const std::vector<int32_t>& layer) {
  struct Candidate {
    double rank;
    PathCost cost;
    Move move;
    int32_t from;
  };
  std::vector<Candidate> candidates;
  for (const int32_t from : layer) {
    moves_.clear();
    const PackedType type = nodes_[from].type;
    AppendMoves(MoveState(space_, type), moves_);
    looked_at_ += static_cast<int64_t>(moves_.size());
    for (const Move& move : moves_) {
      const std::optional<PathCost> cost = CostAfter(nodes_[from], move);
      if (!cost.has_value() || IsTooMuch(*cost, {})) continue;
      const PathRemainder remainder = estimate_.Of(move.after);
      if (IsTooMuch(*cost, remainder)) continue;
      if (move.after == space_.destination()) Reach(from, move, *cost);
      candidates.push_back({RankOf(move.after, *cost, remainder), *cost, move, from});
    }
  }
  std::ranges::stable_sort(candidates, {}, [](const Candidate& candidate) {
    return std::tuple(candidate.rank, candidate.cost);
  });
  std::vector<int32_t> next;
  std::vector<int32_t> parents;
  for (const Candidate& candidate : candidates) {
    if (next.size() == options_.haste.beam) break;
    if (std::ranges::count(parents, candidate.from) >= options_.haste.followers) continue;
    const auto known = known_.find(candidate.move.after);
    if (known != known_.end() && nodes_[known->second].cost <= candidate.cost) continue;
    Reach(candidate.from, candidate.move, candidate.cost);
    const auto reached = known_.find(candidate.move.after);
    if (reached == known_.end()) continue;
    next.push_back(reached->second);
    parents.push_back(candidate.from);
  }
  return next;
}

void LayoutSearch::RunBeam() {
  std::vector<int32_t> layer = {0};
  for (int step = 0; step < kStepsInHaste && !layer.empty(); ++step) {
    if (looked_at_ >= options_.nodes_max) break;
    layer = NextLayer(layer);
  }
}

LayoutPath LayoutSearch::PathTo(int32_t node) const {
  LayoutPath path{.cost = nodes_[node].cost};
  for (; nodes_[node].parent >= 0; node = nodes_[node].parent) {
    path.moves.push_back({nodes_[node].kind, nodes_[node].type});
  }
  std::ranges::reverse(path.moves);
  return path;
}

void LayoutSearch::RunBestFirst() {
  while (!open_.empty()) {
    const Entry entry = open_.top();
    if (nodes_[entry.node].closed) {
      open_.pop();
      continue;
    }
    if (nodes_[entry.node].type == space_.destination()) break;
    // What is left costs no less.
    if (upper_.has_value() && !options_.ties && options_.haste.is_none() &&
        entry.estimate >= upper_->objective * kRounding) {
      break;
    }
    if (looked_at_ >= options_.nodes_max) {
      budget_spent_ = true;
      break;
    }
    open_.pop();
    Expand(entry.node);
  }
}

std::optional<LayoutPath> LayoutSearch::Run() {
  nodes_.push_back(
      {space_.source(), -1, StepKind::kSlice, {}, space_.LocalElements(space_.source()), false});
  known_[space_.source()] = 0;
  if (space_.source() == space_.destination()) goal_ = 0;
  Push(0, estimate_.Of(space_.source()));
  if (options_.relay && options_.ties && options_.nodes_max > 0) ReachByRelays();
  if (options_.haste.beam > 0) {
    RunBeam();
  } else {
    RunBestFirst();
  }
  return Found();
}

std::optional<LayoutPath> LayoutSearch::GoOn(int64_t nodes, const std::optional<PathCost>& upper) {
  budget_spent_ = false;
  options_.nodes_max = looked_at_ + nodes;
  options_.ties = false;
  if (upper.has_value() && (!upper_.has_value() || *upper < *upper_)) {
    upper_ = upper;
    goal_ = -1;  // of more
  }
  RunBestFirst();
  return Found();
}

std::optional<LayoutPath> LayoutSearch::Found() const {
  if (goal_ < 0) return std::nullopt;
  LayoutPath path = PathTo(goal_);
  path.is_best = !budget_spent_ && options_.haste.is_none();
  return path;
}

}  // namespace crossmesh
