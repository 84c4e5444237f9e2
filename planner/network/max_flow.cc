#include "planner/network/max_flow.h"

#include <algorithm>

namespace crossmesh {

int32_t MaxFlow::AddNode() {
  first_.push_back(-1);
  last_.push_back(-1);
  return static_cast<int32_t>(first_.size()) - 1;
}

int64_t MaxFlow::AddEdge(int32_t from, int32_t to, Amount capacity) {
  AddArc(from, to);
  AddArc(to, from);
  capacity_.push_back(capacity);
  return static_cast<int64_t>(capacity_.size()) - 1;
}

void MaxFlow::AddArc(int32_t from, int32_t to) {
  const int32_t arc = static_cast<int32_t>(arcs_.size());
  // Appended, not prepended: paths are to be tried in the order in which edges were added.
  (last_[from] < 0 ? first_[from] : arcs_[last_[from]].next) = arc;
  last_[from] = arc;
  arcs_.push_back({.to = to, .next = -1, .left = 0});
}

MaxFlow::Amount MaxFlow::Run(int32_t source, int32_t sink) {
  for (size_t edge = 0; edge < capacity_.size(); ++edge) {
    arcs_[2 * edge].left = capacity_[edge];
    arcs_[2 * edge + 1].left = 0;
  }
  Amount total = 0;
  while (FindLevels(source, sink)) {
    // Arcs that carry nothing more are not looked at again within one set of levels (Dinic).
    current_ = first_;
    while (const Amount pushed = Push(source, sink, kUnlimited)) total += pushed;
  }
  return total;
}

bool MaxFlow::FindLevels(int32_t source, int32_t sink) {
  level_.assign(first_.size(), -1);
  level_[source] = 0;
  queue_.assign(1, source);
  for (size_t i = 0; i < queue_.size(); ++i) {
    const int32_t node = queue_[i];
    for (int32_t a = first_[node]; a >= 0; a = arcs_[a].next) {
      const Arc& arc = arcs_[a];
      if (arc.left == 0 || level_[arc.to] >= 0) continue;
      level_[arc.to] = level_[node] + 1;
      queue_.push_back(arc.to);
    }
  }
  return level_[sink] >= 0;
}

MaxFlow::Amount MaxFlow::Push(int32_t node, int32_t sink, Amount amount) {
  if (node == sink) return amount;
  Amount pushed = 0;
  for (int32_t& a = current_[node]; a >= 0; a = arcs_[a].next) {
    Arc& arc = arcs_[a];
    if (arc.left == 0 || level_[arc.to] != level_[node] + 1) continue;
    const Amount part = Push(arc.to, sink, std::min(amount - pushed, arc.left));
    arc.left -= part;
    arcs_[a ^ 1].left += part;
    pushed += part;
    if (pushed == amount) break;  // the arc may carry more: it stays current
  }
  return pushed;
}

}  // namespace crossmesh
