#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/missing_estimate.h"
#include "planner/redistribute/moves.h"
#include "planner/redistribute/search_space.h"

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// What a path of steps costs, in the order in which that matters.
struct PathCost {
  double objective = 0;  // bytes, seconds or the peak of live bytes
  int64_t bytes = 0;
  int32_t communicating = 0;
  int32_t steps = 0;
  friend auto operator<=>(const PathCost&, const PathCost&) = default;
};

enum class PathObjective : uint8_t { kSeconds, kBytes, kPeakLiveBytes };

struct LayoutSearchOptions {
  PathObjective objective = PathObjective::kBytes;
  int64_t live_bytes_max = INT64_MAX;
  int64_t local_bytes_max = INT64_MAX;
  int64_t staging_bytes = 0;
  bool relay = false;
  int64_t nodes_max = 0;  // types that are reached
  // Over 0: types that are less in disorder are preferred, so that a path is found sooner, which
  // may not be the best. How many exchanges of a local array a bit of disorder counts.
  double haste = 0;
  std::optional<PathCost> upper;  // only a path that costs less is looked for
};

// A path from source to destination.
struct LayoutPath {
  PathCost cost;
  std::vector<Move> moves;
  bool is_best = false;  // no path that the moves allow costs less
};

// A* over the packed types of one space. Thread-compatible; one use.
class LayoutSearch {
 public:
  using MoveSource = std::function<void(const MoveState&, std::vector<Move>&)>;

  // `moves`: AppendMoves, or what a test has instead.
  LayoutSearch(const SearchSpace& space, const StepPrices& prices,
               const LayoutSearchOptions& options, MoveSource moves = AppendMoves);

  // Nothing when there is no path within the limits that costs less than `upper`.
  std::optional<LayoutPath> Run();
  int64_t nodes() const { return static_cast<int64_t>(nodes_.size()); }
  bool budget_spent() const { return budget_spent_; }

 private:
  struct Node {
    PackedType type;
    int32_t parent;
    StepKind kind;
    PathCost cost;
    bool closed;
  };
  // What is left to do from a type on, at least.
  struct Remainder {
    double objective = 0;
    int64_t bytes = 0;
    int32_t communicating = 0;
    double in_haste = 0;  // beyond the objective, probably
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
  void KeepBest(int32_t from);
  Remainder RemainderOf(const PackedType& type);
  void ExpandRelays(int32_t node);
  void ReachByRelay(int32_t from, const PackedType& after);
  void Reach(int32_t from, const Move& move, const PathCost& cost);
  std::optional<PathCost> CostAfter(const Node& from, const Move& move) const;
  double GatherMessages(const PackedType& type) const;
  double LeftInHaste(const PackedType& type) const;
  bool HasSums(const PackedType& type) const;
  void Push(int32_t node);
  LayoutPath PathTo(int32_t node) const;

  const SearchSpace& space_;
  const StepPrices& prices_;
  const LayoutSearchOptions options_;
  const MoveSource move_source_;
  MissingEstimate missing_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<PackedType, int32_t> known_;
  std::priority_queue<Entry> open_;
  std::vector<Move> moves_;
  int relays_ = 0;
  bool budget_spent_ = false;
  int32_t goal_ = -1;
  std::optional<PathCost> upper_;
};

}  // namespace crossmesh
