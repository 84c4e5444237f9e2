#include "planner/pipeline/ways.h"

#include <algorithm>
#include <functional>

namespace crossmesh {

PipelineWays FindWays(const PipelineProfile& profile, BackwardForm form) {
  const std::vector<StageProfile>& stages = profile.stages;
  std::vector<const EdgeProfile*> edges;
  for (const EdgeProfile& edge : profile.edges) edges.push_back(&edge);
  const auto forward_of = [&profile](const EdgeProfile& edge) {
    return profile.passes(edge) ? edge.forward_seconds : 0;
  };
  const auto backward_of = [&profile](const EdgeProfile& edge) {
    return profile.passes(edge) ? edge.backward_seconds : 0;
  };
  PipelineWays ways;
  for (const StageProfile& stage : stages) {
    ways.head.push_back(0);
    ways.gap.push_back(stage.forward_seconds);
    ways.tail.push_back(form == BackwardForm::kFull ? 0 : stage.weight_gradient_seconds);
    ways.head_pace.push_back(stage.forward_seconds);
    ways.tail_pace.push_back(BackwardSeconds(stage, form));
  }
  // Edges lead to later stages, so this order is a topological one, and each stage is looked at
  // once.
  std::ranges::sort(edges, {}, &EdgeProfile::to);
  for (const EdgeProfile* edge : edges) {  // all that leads to a stage comes before what leaves it
    const StageProfile& from = stages[edge->from];
    const double head = ways.head[edge->from] + from.forward_seconds + forward_of(*edge);
    const double tail = backward_of(*edge) + BackwardSeconds(from, form) + ways.tail[edge->from];
    if (head > ways.head[edge->to]) {
      ways.head[edge->to] = head;
      ways.head_pace[edge->to] =
          std::max(stages[edge->to].forward_seconds, ways.head_pace[edge->from]);
    }
    if (tail > ways.tail[edge->to]) {
      ways.tail[edge->to] = tail;
      ways.tail_pace[edge->to] =
          std::max(BackwardSeconds(stages[edge->to], form), ways.tail_pace[edge->from]);
    }
  }
  std::ranges::sort(edges, std::greater<>(), &EdgeProfile::from);
  for (const EdgeProfile* edge : edges) {  // and the other way round
    const double gap = stages[edge->from].forward_seconds + forward_of(*edge) + ways.gap[edge->to] +
                       BackwardSeconds(stages[edge->to], form) + backward_of(*edge);
    ways.gap[edge->from] = std::max(ways.gap[edge->from], gap);
  }
  return ways;
}

}  // namespace crossmesh
