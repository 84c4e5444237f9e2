#pragma once

#include <cstdint>
#include <vector>

#include <absl/numeric/int128.h>

namespace crossmesh {

// Maximum flow in a directed graph with integer capacities, by Dinic's algorithm (1970).
// Paths are tried in the order in which edges were added, so that earlier edges of a node carry as
// much as they can: this is how callers state preferences. Deterministic. Thread-compatible.
class MaxFlow {
 public:
  using Amount = absl::int128;
  // More than any sum of amounts of a caller may be.
  static constexpr Amount kUnlimited = absl::MakeInt128(int64_t{1} << 62, 0);

  // Returns the node's number: 0, 1, ... in the order of calls.
  int32_t AddNode();
  // Returns the edge's number: 0, 1, ... in the order of calls.
  int64_t AddEdge(int32_t from, int32_t to, Amount capacity);
  // Takes effect in the next Run.
  void SetCapacity(int64_t edge, Amount capacity) { capacity_[edge] = capacity; }

  // The value of a maximum flow, from nothing. Cost: at most nodes^2 * edges; for the layered
  // graphs of the bound a few passes over the edges. Recursion is as deep as the longest path.
  Amount Run(int32_t source, int32_t sink);

  // Of the last Run.
  Amount flow(int64_t edge) const { return arcs_[2 * edge + 1].left; }
  // Whether the node lies on the source's side of the minimum cut of the last Run that is nearest
  // to the source.
  bool OnSourceSide(int32_t node) const { return level_[node] >= 0; }

 private:
  struct Arc {  // edge e is arc 2e, its reverse 2e + 1
    int32_t to;
    int32_t next;  // of the same node, -1 at the end
    Amount left;   // residual capacity
  };

  void AddArc(int32_t from, int32_t to);
  bool FindLevels(int32_t source, int32_t sink);
  Amount Push(int32_t node, int32_t sink, Amount amount);

  std::vector<int32_t> first_;  // arc of each node
  std::vector<int32_t> last_;
  std::vector<Arc> arcs_;
  std::vector<Amount> capacity_;  // by edge
  std::vector<int32_t> level_;    // distance from the source, -1: out of reach
  std::vector<int32_t> current_;  // arc of each node that is tried next
  std::vector<int32_t> queue_;
};

}  // namespace crossmesh
