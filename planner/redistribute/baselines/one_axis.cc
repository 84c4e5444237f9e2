#include "planner/redistribute/baselines/one_axis.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

namespace crossmesh {
namespace {

struct Arrival {
  int64_t bytes = 0;
  int communicating = 0;
  StepKind kind = StepKind::kSlice;
  ContiguousType before;
};

class AxisSearch {
 public:
  explicit AxisSearch(const TypeSpace& space)
      : space_(space),
        source_(ContiguousOf(space.source())),
        destination_(ContiguousOf(space.destination())) {}

  // The steps of the best path, in order; nothing when there is none.
  std::optional<std::vector<std::pair<StepKind, ContiguousType>>> Run() {
    known_[source_] = {};
    open_.emplace(0, 0, source_);
    while (!open_.empty()) {
      const auto [bytes, communicating, type] = open_.top();
      open_.pop();
      if (bytes > known_[type].bytes) continue;
      if (type == destination_) return Path();
      Expand(type);
    }
    return std::nullopt;
  }

 private:
  using Entry = std::tuple<int64_t, int, ContiguousType>;

  int64_t Local(const ContiguousType& type) const {
    return space_.LocalElements(LocalTypeOf(space_, type));
  }
  bool Divides(const ContiguousType& type) const {
    const LocalType local = LocalTypeOf(space_, type);
    return std::ranges::none_of(local.dimensions, [](const std::vector<DimensionCut>& cuts) {
      return !cuts.empty() && cuts.front().stride == 0;
    });
  }

  void Reach(StepKind kind, int32_t atom, const ContiguousType& before,
             const ContiguousType& after) {
    if (!Divides(after)) return;
    const Arrival& from = known_[before];
    Arrival arrival{
        .bytes = from.bytes + ReceivedElements(kind, Local(before), space_.atoms()[atom].size),
        .communicating = from.communicating + (kind == StepKind::kSlice ? 0 : 1),
        .kind = kind,
        .before = before};
    const auto found = known_.find(after);
    if (found != known_.end() && std::tuple(arrival.bytes, arrival.communicating) >=
                                     std::tuple(found->second.bytes, found->second.communicating)) {
      return;
    }
    open_.emplace(arrival.bytes, arrival.communicating, after);
    known_[after] = std::move(arrival);
  }

  // `base` is `before` without the atom, which comes to every dimension that it did not cut.
  void ReachCuts(StepKind kind, int32_t atom, const ContiguousType& before,
                 const ContiguousType& base) {
    for (size_t dimension = 0; dimension < base.dimensions.size(); ++dimension) {
      ContiguousType after = base;
      after.dimensions[dimension].push_back(atom);
      if (after != before) Reach(kind, atom, before, after);
    }
  }

  void Expand(const ContiguousType& type) {
    std::vector<bool> replicated(space_.atom_count(), true);
    for (size_t dimension = 0; dimension < type.dimensions.size(); ++dimension) {
      for (const int32_t atom : type.dimensions[dimension]) replicated[atom] = false;
      if (type.dimensions[dimension].empty()) continue;
      ContiguousType without = type;
      const int32_t atom = without.dimensions[dimension].back();
      without.dimensions[dimension].pop_back();
      Reach(StepKind::kAllGather, atom, type, without);
      ReachCuts(StepKind::kAllToAll, atom, type, without);
    }
    for (const int32_t atom : type.partial) {
      replicated[atom] = false;
      if (std::ranges::find(destination_.partial, atom) != destination_.partial.end()) continue;
      ContiguousType without = type;
      std::erase(without.partial, atom);
      Reach(StepKind::kAllReduce, atom, type, without);
      ReachCuts(StepKind::kReduceScatter, atom, type, without);
    }
    for (int32_t atom = 0; atom < space_.atom_count(); ++atom) {
      if (replicated[atom]) ReachCuts(StepKind::kSlice, atom, type, type);
    }
  }

  std::vector<std::pair<StepKind, ContiguousType>> Path() {
    std::vector<std::pair<StepKind, ContiguousType>> path;
    for (ContiguousType type = destination_; type != source_;) {
      const Arrival& arrival = known_[type];
      path.emplace_back(arrival.kind, type);
      type = ContiguousType(arrival.before);
    }
    std::ranges::reverse(path);
    return path;
  }

  const TypeSpace& space_;
  const ContiguousType source_;
  const ContiguousType destination_;
  std::map<ContiguousType, Arrival> known_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
};

}  // namespace

std::optional<Derivation> OneAxis(std::shared_ptr<const TypeSpace> space,
                                  const CollectiveCost& cost) {
  const auto path = AxisSearch(*space).Run();
  if (!path.has_value()) return std::nullopt;
  ContiguousSteps steps(std::move(space), cost);
  for (const auto& [kind, type] : *path) steps.Append(kind, type);
  return std::move(steps).Finish();
}

}  // namespace crossmesh
