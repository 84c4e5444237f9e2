#include "common/plan/step_kind.h"

#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/reduction.h"
#include "common/plan/tensor_table.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {
namespace {

using AxisNames = std::vector<std::string>;

// How the axes that cut the tensors of a group change.
class CutChange {
 public:
  CutChange(const TensorGroup& group, const Mesh& mesh) : group_(group), mesh_(mesh) {}

  StepKind Find(const AxisLayout& before, const AxisLayout& after, bool reduces) {
    is_uneven_ = before.rule != after.rule;
    for (int d = 0; d < group_.shape.rank(); ++d) {
      if (d < group_.slab.summand_dimensions) {
        AddSummands(before.dimensions[d], after.dimensions[d]);
      } else {
        AddCuts(group_.shape[d], before.dimensions[d], after.dimensions[d]);
      }
    }
    return reduces ? Reducing() : Moving();
  }

 private:
  void AddSummands(const AxisNames& before, const AxisNames& after) {
    if (after.empty()) summed_.insert(before.begin(), before.end());
  }

  void AddCuts(int64_t length, const AxisNames& before, const AxisNames& after) {
    if (before == after) return;
    is_changed_ = true;
    const int64_t parts_before = PartsOf(before);
    const int64_t parts_after = PartsOf(after);
    is_uneven_changed_ |= length % parts_before != 0 || length % parts_after != 0;
    const size_t common = std::ranges::mismatch(before, after).in1 - before.begin();
    lost_.insert(before.begin() + static_cast<std::ptrdiff_t>(common), before.end());
    gained_.insert(after.begin() + static_cast<std::ptrdiff_t>(common), after.end());
    if (common < std::min(before.size(), after.size())) is_replaced_ = true;
    has_larger_blocks_ |= parts_after % parts_before != 0;
  }

  int64_t PartsOf(const AxisNames& axes) const {
    int64_t parts = 1;
    for (const std::string& axis : axes) parts *= mesh_.axes()[*mesh_.FindAxis(axis)].size;
    return parts;
  }

  StepKind Reducing() const {
    const bool is_scattered = std::ranges::any_of(
        gained_, [this](const std::string& axis) { return summed_.contains(axis); });
    return is_scattered ? StepKind::kReduceScatter : StepKind::kAllReduce;
  }

  StepKind Moving() const {
    if (is_uneven_changed_ || (is_uneven_ && is_changed_)) return StepKind::kRelay;
    if (lost_.empty()) return StepKind::kSlice;
    if (is_replaced_) return has_larger_blocks_ ? StepKind::kRelay : StepKind::kPermute;
    const auto moved = std::ranges::count_if(
        lost_, [this](const std::string& axis) { return gained_.contains(axis); });
    if (moved == 0) return StepKind::kAllGather;
    return moved == std::ssize(lost_) ? StepKind::kAllToAll : StepKind::kRelay;
  }

  const TensorGroup& group_;
  const Mesh& mesh_;
  std::set<std::string> summed_;
  std::set<std::string> lost_;    // they cut a dimension before and not, or elsewhere, after
  std::set<std::string> gained_;  // the other way
  bool is_changed_ = false;
  bool is_uneven_ = false;
  bool is_uneven_changed_ = false;
  bool is_replaced_ = false;  // something else cuts where something has cut
  bool has_larger_blocks_ = false;
};

StepKind KindOfGroup(const TensorTable& table, int32_t group, bool reduces) {
  const Placement& before = table.PlacementOf(Side::kSource, group);
  const Placement& after = table.PlacementOf(Side::kDestination, group);
  const AxisLayout* const cuts_before = before.layout.axes();
  const AxisLayout* const cuts_after = after.layout.axes();
  if (cuts_before == nullptr || cuts_after == nullptr || before.mesh != after.mesh) {
    return StepKind::kRelay;
  }
  return CutChange(table.groups()[group], before.mesh).Find(*cuts_before, *cuts_after, reduces);
}

}  // namespace

absl::string_view StepKindName(StepKind kind) {
  // In the order of StepKind.
  constexpr absl::string_view kNames[] = {"slice",          "all_gather", "all_to_all", "permute",
                                          "reduce_scatter", "all_reduce", "relay"};
  static_assert(std::size(kNames) == kStepKinds);
  return kNames[static_cast<size_t>(kind)];
}

StepKind FindStepKind(const TensorTable& table, const std::optional<Reduction>& reduction) {
  std::optional<StepKind> found;
  for (int32_t group = 0; group < std::ssize(table.groups()); ++group) {
    if (table.tensors_in_group(group) == 0) continue;
    const StepKind kind = KindOfGroup(table, group, reduction.has_value());
    if (found.has_value() && found != kind) return StepKind::kRelay;
    found = kind;
  }
  return found.value_or(StepKind::kSlice);
}

}  // namespace crossmesh
