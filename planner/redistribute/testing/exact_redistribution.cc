#include "planner/redistribute/testing/exact_redistribution.h"

#include "common/base/check.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace crossmesh {

ExactRedistribution::ExactRedistribution(const TypeSpace& space, bool partial)
    : space_(space), partial_(partial) {
  LocalType type;
  type.dimensions.resize(space.shape().rank());
  ListTypes(type, 0);
  ListEdges();
}

void ExactRedistribution::ListTypes(LocalType& type, int32_t atom) {
  if (atom == space_.atom_count()) {
    types_.push_back(type);
    return;
  }
  ListTypes(type, atom + 1);
  if (partial_) {
    type.partial.push_back(atom);
    ListTypes(type, atom + 1);
    type.partial.pop_back();
  }
  for (int dimension = 0; dimension < space_.shape().rank(); ++dimension) {
    for (int64_t stride = 1; stride < space_.shape()[dimension]; ++stride) {
      const std::vector<DimensionCut> cuts = type.dimensions[dimension];
      type.dimensions[dimension].push_back({atom, stride});
      std::ranges::sort(type.dimensions[dimension], std::ranges::greater(), &DimensionCut::stride);
      if (space_.Validate(type).ok()) ListTypes(type, atom + 1);
      type.dimensions[dimension] = cuts;
    }
  }
}

void ExactRedistribution::ListEdges() {
  edges_to_.resize(types_.size());
  for (size_t from = 0; from < types_.size(); ++from) {
    for (size_t to = 0; to < types_.size(); ++to) {
      if (from == to) continue;
      for (const StepKind kind :
           {StepKind::kSlice, StepKind::kAllGather, StepKind::kAllToAll, StepKind::kPermute,
            StepKind::kReduceScatter, StepKind::kAllReduce}) {
        const absl::StatusOr<RedistributionStep> step =
            MakeStep(space_, kind, {types_[from], types_[to]});
        if (!step.ok()) continue;
        edges_to_[to].push_back(
            {static_cast<int32_t>(from), kind, step->bytes_received, step->atoms});
      }
    }
  }
}

size_t ExactRedistribution::IndexOf(const LocalType& type) const {
  const auto found = std::ranges::find(types_, type);
  CHECK(found != types_.end()) << space_.Text(type);
  return found - types_.begin();
}

template <typename Cost, typename CostOf>
std::vector<Cost> ExactRedistribution::Least(const LocalType& destination, int64_t local_bytes_max,
                                             CostOf cost_of) const {
  using Entry = std::pair<Cost, int32_t>;  // of a type
  std::vector<Cost> least(types_.size(), -1);
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  open.emplace(0, static_cast<int32_t>(IndexOf(destination)));
  while (!open.empty()) {
    const auto [cost, type] = open.top();
    open.pop();
    if (least[type] >= 0) continue;
    least[type] = cost;
    if (space_.LocalBytes(types_[type]) > local_bytes_max) continue;
    for (const Edge& edge : edges_to_[type]) {
      if (least[edge.from] < 0) open.emplace(cost + cost_of(edge), edge.from);
    }
  }
  return least;
}

std::vector<int64_t> ExactRedistribution::LeastBytes(const LocalType& destination,
                                                     int64_t local_bytes_max) const {
  return Least<int64_t>(destination, local_bytes_max, [](const Edge& edge) { return edge.bytes; });
}

std::vector<double> ExactRedistribution::LeastSeconds(const LocalType& destination,
                                                      const StepPrices& prices) const {
  return Least<double>(destination, INT64_MAX, [&](const Edge& edge) {
    const int64_t bytes = space_.LocalBytes(types_[edge.from]);
    const double seconds = prices.Seconds(edge.kind, edge.atoms, bytes);
    return prices.rings().has_value()
               ? std::min(seconds, prices.rings()->Seconds(edge.kind, edge.atoms, bytes))
               : seconds;
  });
}

}  // namespace crossmesh
