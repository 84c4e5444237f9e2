#include "planner/redistribute/layout_search.h"

#include "common/base/check.h"
#include "planner/redistribute/exchange_estimate.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace crossmesh {
namespace {

// Types from which relays are looked at. Each costs the devices.
constexpr int kRelaysMax = 4;
constexpr size_t kMovesInHaste = 12;

}  // namespace

bool LayoutSearch::Entry::operator<(const Entry& other) const {
  return std::tuple(estimate, bytes, communicating, disorder, -done, node) >
         std::tuple(other.estimate, other.bytes, other.communicating, other.disorder, -other.done,
                    other.node);
}

LayoutSearch::LayoutSearch(const SearchSpace& space, const StepPrices& prices,
                           const LayoutSearchOptions& options, MoveSource moves)
    : space_(space),
      prices_(prices),
      options_(options),
      move_source_(std::move(moves)),
      missing_(space),
      upper_(options.upper) {}

std::optional<PathCost> LayoutSearch::CostAfter(const Node& from, const Move& move) const {
  const int64_t item = space_.types().item_bytes();
  const int64_t before = space_.LocalElements(from.type);
  const int64_t after = space_.LocalElements(move.after);
  const bool communicates = move.kind != StepKind::kSlice;
  const int64_t live = (before + after) * item + (communicates ? options_.staging_bytes : 0);
  if (live > options_.live_bytes_max || after * item > options_.local_bytes_max) {
    return std::nullopt;
  }
  std::vector<int32_t> atoms;
  int64_t group = 1;
  for (int32_t atom = 0; atom < space_.atoms(); ++atom) {
    if (from.type[atom] == move.after[atom]) continue;
    atoms.push_back(atom);
    group *= space_.size(atom);
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
      cost.objective += prices_.Seconds(move.kind, atoms, before * item);
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

// What is exchanged is exchanged at about the size that the local array has now.
double LayoutSearch::LeftInHaste(const PackedType& type) const {
  const double bytes =
      static_cast<double>(space_.LocalElements(type) * space_.types().item_bytes());
  const double once = options_.objective == PathObjective::kSeconds
                          ? prices_.LeastSeconds(static_cast<int64_t>(bytes), 1, 1)
                          : bytes;
  return once * Disorder(space_, type);
}

// A gather by N devices grows an array N times and takes N - 1 messages of a device, which is no
// fewer than log2 N.
double LayoutSearch::GatherMessages(const PackedType& type) const {
  const auto local = static_cast<double>(std::max<int64_t>(space_.LocalElements(type), 1));
  return std::log2(static_cast<double>(space_.LocalElements(space_.destination())) / local);
}

LayoutSearch::Remainder LayoutSearch::RemainderOf(const PackedType& type) {
  int64_t missing = missing_.Elements(type);
  Remainder remainder{.communicating = missing > 0 ? 1 : 0};
  // A relay takes everything to its place at once, so with relays this may be too much. They are
  // looked at from the first types only, whatever the estimates say.
  if (type != space_.destination() && !HasSums(type)) {
    const ExchangeEstimate exchange = EstimateExchange(space_, type);
    missing = std::max(missing, exchange.elements);
    remainder.communicating = std::max(remainder.communicating, exchange.communicating);
  }
  remainder.bytes = missing * space_.types().item_bytes();
  switch (options_.objective) {
    case PathObjective::kBytes:
      remainder.objective = static_cast<double>(remainder.bytes);
      break;
    case PathObjective::kSeconds:
      remainder.objective = prices_.LeastSeconds(
          remainder.bytes, remainder.communicating,
          std::max(static_cast<double>(remainder.communicating), GatherMessages(type)));
      break;
    case PathObjective::kPeakLiveBytes:
      break;
  }
  if (options_.haste > 0) remainder.in_haste = options_.haste * LeftInHaste(type);
  return remainder;
}

void LayoutSearch::Push(int32_t number) {
  const Node& node = nodes_[number];
  const Remainder remainder = RemainderOf(node.type);
  const Entry entry{.estimate = node.cost.objective + remainder.objective + remainder.in_haste,
                    .bytes = node.cost.bytes + remainder.bytes,
                    .communicating = node.cost.communicating + remainder.communicating,
                    .disorder = Disorder(space_, node.type),
                    .done = node.cost.objective,
                    .node = number};
  const PathCost least{.objective = node.cost.objective + remainder.objective,
                       .bytes = entry.bytes,
                       .communicating = entry.communicating,
                       .steps = node.cost.steps};
  if (!upper_.has_value() || least <= *upper_) open_.push(entry);
}

void LayoutSearch::Reach(int32_t from, const Move& move, const PathCost& cost) {
  const auto [found, added] = known_.try_emplace(move.after, static_cast<int32_t>(nodes_.size()));
  const Node reached{move.after, from, move.kind, cost, false};
  if (added) {
    nodes_.push_back(reached);
  } else {
    if (cost >= nodes_[found->second].cost) return;
    nodes_[found->second] = reached;
  }
  const int32_t number = found->second;
  if (move.after == space_.destination() && (!upper_.has_value() || cost < *upper_)) {
    upper_ = cost;
    goal_ = number;
  }
  Push(number);
}

// Straight to the destination, or to where a gather leads there: then less goes over slow links.
void LayoutSearch::ExpandRelays(int32_t number) {
  const PackedType type = nodes_[number].type;
  if (HasSums(type) || relays_ >= kRelaysMax) return;
  ++relays_;
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
  ++cost.steps;
  switch (options_.objective) {
    case PathObjective::kBytes:
      cost.objective = static_cast<double>(cost.bytes);
      break;
    case PathObjective::kSeconds:
      cost.objective += prices_.SecondsOf(*step);
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
  move_source_(MoveState(space_, type), moves_);
  if (options_.haste > 0) KeepBest(number);
  for (const Move& move : moves_) {
    const std::optional<PathCost> cost = CostAfter(nodes_[number], move);
    if (cost.has_value()) Reach(number, move, *cost);
  }
  if (options_.relay && options_.haste == 0) ExpandRelays(number);
}

// In haste, only the moves that seem best are followed.
void LayoutSearch::KeepBest(int32_t from) {
  std::vector<std::pair<double, size_t>> ranked;
  for (size_t i = 0; i < moves_.size(); ++i) {
    const std::optional<PathCost> cost = CostAfter(nodes_[from], moves_[i]);
    if (!cost.has_value()) continue;
    const Remainder remainder = RemainderOf(moves_[i].after);
    ranked.emplace_back(cost->objective + remainder.objective + remainder.in_haste, i);
  }
  const size_t kept = std::min(ranked.size(), kMovesInHaste);
  std::ranges::partial_sort(ranked, ranked.begin() + static_cast<std::ptrdiff_t>(kept));
  std::vector<Move> best;
  for (size_t i = 0; i < kept; ++i) best.push_back(moves_[ranked[i].second]);
  moves_ = std::move(best);
}

LayoutPath LayoutSearch::PathTo(int32_t node) const {
  LayoutPath path{.cost = nodes_[node].cost};
  for (; nodes_[node].parent >= 0; node = nodes_[node].parent) {
    path.moves.push_back({nodes_[node].kind, nodes_[node].type});
  }
  std::ranges::reverse(path.moves);
  return path;
}

std::optional<LayoutPath> LayoutSearch::Run() {
  nodes_.push_back({space_.source(), -1, StepKind::kSlice, {}, false});
  known_[space_.source()] = 0;
  if (space_.source() == space_.destination()) goal_ = 0;
  Push(0);
  while (!open_.empty()) {
    const Entry entry = open_.top();
    if (nodes_[entry.node].closed) {
      open_.pop();
      continue;
    }
    if (nodes_[entry.node].type == space_.destination()) break;
    if (nodes() >= options_.nodes_max) {
      budget_spent_ = true;
      break;
    }
    open_.pop();
    Expand(entry.node);
  }
  if (goal_ < 0) return std::nullopt;
  LayoutPath path = PathTo(goal_);
  path.is_best = !budget_spent_ && options_.haste == 0;
  return path;
}

}  // namespace crossmesh
