#include "planner/redistribute/planning/lowering.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

bool JoinsAtoms(const LocalType& type) {
  return std::ranges::any_of(type.dimensions, [](const std::vector<DimensionCut>& cuts) {
    return std::ranges::any_of(cuts, &DimensionCut::joined);
  });
}

std::vector<std::string> AxesOf(std::span<const DimensionCut> cuts) {
  std::vector<std::string> axes;
  for (const DimensionCut& cut : cuts) axes.push_back(AxisName(cut.atom));
  return axes;
}

int64_t Product(std::span<const int32_t> atoms, const TypeSpace& space) {
  int64_t product = 1;
  for (const int32_t atom : atoms) product *= space.atoms()[atom].size;
  return product;
}

std::vector<int32_t> Without(const std::vector<int32_t>& atoms,
                             const std::vector<int32_t>& others) {
  std::vector<int32_t> rest;
  std::ranges::set_difference(atoms, others, std::back_inserter(rest));
  return rest;
}

Reduction ReductionOf(PartialReduction kind, int64_t divisor) {
  switch (kind) {
    case PartialReduction::kSum:
      return {};
    case PartialReduction::kMean:
      return {.divisor = divisor};
    case PartialReduction::kMin:
      return {.kind = ReductionKind::kMin};
    case PartialReduction::kMax:
      return {.kind = ReductionKind::kMax};
  }
  return {};
}

}  // namespace

Lowering::Lowering(const Derivation& derivation) : space_(derivation.space()) {
  Lower(derivation.steps());
  FindSlabPlace();
  if (Fits()) return;
  is_direct_ = true;
  LowerDirectly(true);
  if (!Fits()) LowerDirectly(false);
  FindSlabPlace();
}

bool Lowering::Fits() const {
  return std::ranges::all_of(moves_, [this](const Move& move) { return StepOf(move, 1).ok(); });
}

void Lowering::LowerDirectly(bool splits) {
  moves_.clear();
  LocalType reduced = space_.source();
  reduced.partial = space_.destination().partial;
  if (reduced != space_.source()) {
    const std::vector<int32_t> atoms = Without(space_.source().partial, reduced.partial);
    if (splits) reduced = SplitType(reduced, atoms);
    AddMove(space_.source(), reduced);
  }
  if (reduced != space_.destination() || moves_.empty()) AddMove(reduced, space_.destination());
}

std::vector<Axis> Lowering::axes() const {
  std::vector<Axis> axes;
  for (int32_t atom = 0; atom < space_.atom_count(); ++atom) {
    axes.push_back({.name = AxisName(atom), .size = space_.atoms()[atom].size});
  }
  return axes;
}

std::vector<std::optional<Reduction>> Lowering::reductions() const {
  std::vector<std::optional<Reduction>> reductions(moves_.size());
  std::optional<Reduction>* last = nullptr;
  int64_t summands = 1;
  for (size_t i = 0; i < moves_.size(); ++i) {
    if (moves_[i].reduced.empty()) continue;
    reductions[i] = ReductionOf(space_.reduction(), 1);
    last = &reductions[i];
    summands *= Product(moves_[i].reduced, space_);
  }
  // A mean is divided once, by all summands.
  if (last != nullptr) *last = ReductionOf(space_.reduction(), summands);
  return reductions;
}

void Lowering::Lower(std::span<const RedistributionStep> steps) {
  LocalType from = space_.source();
  for (const RedistributionStep& step : steps) {
    if (step.kind == StepKind::kSlice) continue;
    if (step.kind != StepKind::kAllReduce) {
      AddMove(from, step.after);
    } else {
      AddMove(from, SplitType(step.after, step.atoms));
      if (moves_.back().after != step.after) AddMove(moves_.back().after, step.after);
    }
    from = step.after;
  }
  const LocalType& last = space_.destination();
  if (from == last && !moves_.empty()) return;
  // Slices at the end.
  if (moves_.empty() || !moves_.back().reduced.empty()) {
    AddMove(from, last);
  } else {
    moves_.back().after = last;
  }
}

void Lowering::AddMove(LocalType before, LocalType after) {
  Move& move = moves_.emplace_back(Move{.before = std::move(before), .after = std::move(after)});
  move.reduced = Without(move.before.partial, move.after.partial);
}

// Summands are reduced in parts of the array, one for each device that has some, where it can be
// cut into as many.
LocalType Lowering::SplitType(const LocalType& after, std::span<const int32_t> atoms) const {
  for (int d = 0; d < space_.shape().rank(); ++d) {
    LocalType split = after;
    if (SplitDimension(space_.shape()[d], atoms, split.dimensions[d])) return split;
  }
  return after;
}

// Adds cuts by atoms where the dimension has room for all of them between its cuts, if it has.
bool Lowering::SplitDimension(int64_t length, std::span<const int32_t> atoms,
                              std::vector<DimensionCut>& cuts) const {
  if (std::ranges::any_of(cuts, [](const DimensionCut& cut) { return cut.stride == 0; })) {
    return false;
  }
  int64_t high = length;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const int64_t low = i == cuts.size() ? 1 : cuts[i].stride * space_.atoms()[cuts[i].atom].size;
    if (high / low % Product(atoms, space_) == 0) {
      std::vector<DimensionCut> added;
      for (const int32_t atom : atoms) {
        added.push_back({.atom = atom, .stride = high /= space_.atoms()[atom].size});
      }
      cuts.insert(cuts.begin() + static_cast<std::ptrdiff_t>(i), added.begin(), added.end());
      return true;
    }
    if (i < cuts.size()) high = cuts[i].stride;
  }
  return false;
}

void Lowering::FindSlabPlace() {
  std::vector<TypeDigits> types;
  for (const Move& move : moves_) {
    types.emplace_back(space_, move.before);
    types.emplace_back(space_, move.after);
  }
  slab_place_ = SlabPlaceOf(space_.shape().elements(), types);
}

int64_t Lowering::array_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < moves_.size(); ++i) {
    const int64_t after = space_.LocalBytes(moves_[i].after);
    if (!moves_[i].reduced.empty()) {
      bytes = std::max(bytes, after * Product(moves_[i].reduced, space_));
    }
    if (i + 1 < moves_.size()) bytes = std::max(bytes, after);
  }
  return bytes;
}

int64_t Lowering::summands() const {
  int64_t most = 1;
  for (const Move& move : moves_) most = std::max(most, Product(move.reduced, space_));
  return most;
}

absl::StatusOr<std::vector<LoweredStep>> Lowering::Steps(int64_t slabs) const {
  if (slabs < 1 || slab_place_.length % slabs != 0) {
    return absl::InvalidArgumentError(absl::StrCat("slabs: expected a number that divides ",
                                                   slab_place_.length, ", found ", slabs));
  }
  const std::vector<std::optional<Reduction>> of_steps = reductions();
  std::vector<LoweredStep> steps;
  for (size_t i = 0; i < moves_.size(); ++i) {
    ASSIGN_OR_RETURN(LoweredStep step, StepOf(moves_[i], slabs));
    step.reduction = of_steps[i];
    steps.push_back(std::move(step));
  }
  return steps;
}

absl::StatusOr<LoweredStep> Lowering::StepOf(const Move& move, int64_t slabs) const {
  const std::vector<TypeDigits> types = {TypeDigits(space_, move.before),
                                         TypeDigits(space_, move.after)};
  const std::vector<IndexPart> parts =
      PartsOf(space_.shape().elements(), types, slab_place_, slabs);

  LoweredStep step;
  // Axes of a step are atoms, of which the rule makes something else than of axes.
  if (JoinsAtoms(move.before) || JoinsAtoms(move.after)) {
    return absl::InvalidArgumentError(
        "expected axes of the common mesh where rule nested_chunk cuts, found parts of one");
  }
  step.source.rule = space_.RuleOf(move.before);
  step.destination.rule = space_.RuleOf(move.after);
  step.slab.slabs = slabs;
  std::vector<int64_t> lengths;
  const auto add = [&](int64_t length, std::vector<std::string> before,
                       std::vector<std::string> after) {
    lengths.push_back(length);
    step.source.dimensions.push_back(std::move(before));
    step.destination.dimensions.push_back(std::move(after));
  };
  for (const int32_t atom : move.before.partial) {
    const bool is_reduced = std::ranges::binary_search(move.reduced, atom);
    add(space_.atoms()[atom].size, {AxisName(atom)},
        is_reduced ? std::vector<std::string>() : std::vector{AxisName(atom)});
  }
  step.slab.summand_dimensions = static_cast<int32_t>(lengths.size());
  // The first device of those that cut a dimension of one element has it.
  for (int d = 0; d < space_.shape().rank(); ++d) {
    if (space_.shape()[d] != 1) continue;
    std::vector<std::string> before = AxesOf(move.before.dimensions[d]);
    std::vector<std::string> after = AxesOf(move.after.dimensions[d]);
    if (!before.empty() || !after.empty()) add(1, std::move(before), std::move(after));
  }
  step.slab.row_dimension = static_cast<int32_t>(lengths.size());
  for (const IndexPart& part : parts) {
    if (part.is_slab) {
      step.slab.row_dimension = static_cast<int32_t>(lengths.size());
      continue;
    }
    std::optional<std::vector<std::string>> before = CutsOf(types[0], part);
    std::optional<std::vector<std::string>> after = CutsOf(types[1], part);
    if (!before.has_value() || !after.has_value()) {
      return absl::InvalidArgumentError("cuts that do not divide each other, one of them strided");
    }
    add(part.high / part.low, *std::move(before), *std::move(after));
  }
  if (std::ssize(lengths) > Shape::kRankMax) {
    return absl::ResourceExhaustedError(absl::StrCat("a step: expected at most ", Shape::kRankMax,
                                                     " dimensions, found ", lengths.size()));
  }
  ASSIGN_OR_RETURN(step.shape, Shape::Create(lengths));
  return step;
}

}  // namespace crossmesh
