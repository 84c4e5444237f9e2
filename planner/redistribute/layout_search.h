#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/move_prices.h"
#include "planner/redistribute/moves.h"
#include "planner/redistribute/path_estimate.h"
#include "planner/redistribute/search_space.h"

#include <compare>
#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

namespace crossmesh {

// What a path of steps costs, in the order in which that matters.
struct PathCost {
  double objective = 0;  // bytes, seconds or the peak of live bytes
  int64_t bytes = 0;
  int32_t communicating = 0;
  int32_t steps = 0;
  friend auto operator<=>(const PathCost&, const PathCost&) = default;
};

// By which a path is found sooner, which may not be the best.
struct SearchHaste {
  // Over 0: of all types that as many steps lead to, only so many are followed, and of what follows
  // one of them only so many, so that they are not all alike.
  size_t beam = 0;
  int followers = 2;
  double weight = 1;    // how often an estimate counts
  double disorder = 0;  // how many exchanges of a local array a bit of disorder counts
  bool is_none() const { return beam == 0 && weight == 1 && disorder == 0; }
};

struct LayoutSearchOptions {
  PathObjective objective = PathObjective::kBytes;
  int64_t live_bytes_max = INT64_MAX;
  int64_t local_bytes_max = INT64_MAX;
  int64_t staging_bytes = 0;
  bool relay = false;
  int64_t nodes_max = 0;  // types that are looked at, each time that they are
  SearchHaste haste;
  // Whether a path that costs as much, but for bytes and steps, is looked for as well.
  bool ties = true;
  std::optional<PathCost> upper;  // only a path that costs less is looked for
};

// A path from source to destination.
struct LayoutPath {
  PathCost cost;
  std::vector<Move> moves;
  bool is_best = false;  // no path that the moves allow costs less
};

// A* over the packed types of one space. Thread-compatible.
class LayoutSearch {
 public:
  LayoutSearch(const SearchSpace& space, const StepPrices& prices, PathEstimate& estimate,
               const LayoutSearchOptions& options);

  // Nothing when there is no path within the limits that costs less than `upper`.
  std::optional<LayoutPath> Run();
  // Goes on where Run, or this, has ended by the budget, for so many nodes more. Nothing when there
  // is no path that costs less than `upper`, ties apart.
  std::optional<LayoutPath> GoOn(int64_t nodes, const std::optional<PathCost>& upper);
  int64_t nodes() const { return looked_at_; }
  bool budget_spent() const { return budget_spent_; }

 private:
  struct Node {
    PackedType type;
    int32_t parent;
    StepKind kind;
    PathCost cost;
    int64_t local_elements;
    bool closed;
  };
  // Before others: the least estimate of the whole path; then the farthest along.
  struct Entry {
    double estimate;
    int64_t bytes;
    int32_t communicating;
    double disorder;
    double done;
    int32_t node;
    bool operator<(const Entry& other) const;  // for a heap: whether it comes later
  };

  void Expand(int32_t node);
  void RunBeam();
  std::vector<int32_t> NextLayer(const std::vector<int32_t>& layer);
  void RunBestFirst();
  std::optional<LayoutPath> Found() const;
  void ReachByRelays();
  std::vector<int32_t> ReachForRelays(int32_t from);
  void ReachByRelaysFrom(int32_t node);
  void ReachByRelay(int32_t from, const PackedType& after);
  void Reach(int32_t from, const Move& move, const PathCost& cost);
  std::optional<int32_t> Add(int32_t from, const Move& move, const PathCost& cost);
  int32_t AddNew(int32_t from, const Move& move, const PathCost& cost,
                 const PathRemainder& remainder);
  PackedType BeforeGather(const PackedType& type) const;
  double RankForRelay(const PackedType& type, const PathCost& cost) const;
  int64_t ElementsAfter(const Node& from, const Move& move) const;
  // Executors do a slice with the step after it, which is then no collective.
  static bool FollowsSlice(const Node& from) {
    return from.parent >= 0 && from.kind == StepKind::kSlice;
  }
  std::optional<PathCost> CostAfter(const Node& from, const Move& move) const;
  double RankOf(const PackedType& type, const PathCost& cost, const PathRemainder& remainder) const;
  bool HasSums(const PackedType& type) const;
  bool IsTooMuch(const PathCost& cost, const PathRemainder& remainder) const;
  void Push(int32_t node, const PathRemainder& remainder);
  LayoutPath PathTo(int32_t node) const;

  const SearchSpace& space_;
  const StepPrices& prices_;
  const MovePrices move_prices_;
  LayoutSearchOptions options_;
  PathEstimate& estimate_;
  std::vector<Node> nodes_;
  PackedTypeMap<int32_t> known_;
  std::priority_queue<Entry> open_;
  std::vector<Move> moves_;
  int64_t looked_at_ = 0;
  bool budget_spent_ = false;
  int32_t goal_ = -1;
  std::optional<PathCost> upper_;
};

}  // namespace crossmesh
