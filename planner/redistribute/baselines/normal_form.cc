#include "planner/redistribute/baselines/normal_form.h"

#include "planner/redistribute/baselines/rewriting.h"

#include <utility>

namespace crossmesh {
namespace {

StepKind KindOf(RewriteOp::Kind kind) {
  switch (kind) {
    case RewriteOp::Kind::kGather:
      return StepKind::kAllGather;
    case RewriteOp::Kind::kSlice:
      return StepKind::kSlice;
    case RewriteOp::Kind::kMove:
      return StepKind::kAllToAll;
    case RewriteOp::Kind::kSwapHeads:
    case RewriteOp::Kind::kReplace:
    case RewriteOp::Kind::kSwapWithin:
      break;
  }
  return StepKind::kPermute;
}

}  // namespace

std::optional<Derivation> NormalForm(std::shared_ptr<const TypeSpace> space,
                                     const CollectiveCost& cost) {
  const ContiguousType source = ContiguousOf(space->source());
  const ContiguousType destination = ContiguousOf(space->destination());
  if (!source.partial.empty() || !destination.partial.empty()) return std::nullopt;
  for (const LocalType* type : {&space->source(), &space->destination()}) {
    for (const std::vector<DimensionCut>& cuts : type->dimensions) {
      if (!cuts.empty() && cuts.front().stride == 0) return std::nullopt;
    }
  }
  const std::vector<RewriteOp> ops = Rewrite(*space, source, destination);
  ContiguousSteps steps(std::move(space), cost);
  ContiguousType type = source;
  for (size_t i = 0; i < ops.size();) {
    const StepKind kind = KindOf(ops[i].kind);
    // Slices, gathers and permutes in a row are one step each.
    do {
      Apply(ops[i], type);
      ++i;
    } while (i < ops.size() && KindOf(ops[i].kind) == kind && kind != StepKind::kAllToAll);
    if (!steps.TryAppend(kind, type)) return std::nullopt;
  }
  return std::move(steps).Finish();
}

}  // namespace crossmesh
