#include "planner/redistribute/planning/lowering.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// An index of a tensor, row-major over all dimensions, is a number of mixed radix; a cut is one of
// its digits, from `low` to `high`.
struct Digit {
  int64_t low = 1;
  int64_t high = 1;
  int32_t atom = -1;
};

// A part of the index of which both types of a step cut nothing but the top.
struct IndexPart {
  int64_t low = 1;
  int64_t high = 1;
  bool is_slab = false;
};

// Cuts of a type as digits of the whole index, major first; those of a dimension that does not
// divide are all of it. What cuts a dimension of one element is no digit: no index has it.
class TypeDigits {
 public:
  TypeDigits(const TypeSpace& space, const LocalType& type) {
    int64_t below = 1;
    for (int d = space.shape().rank() - 1; d >= 0; --d) {
      const int64_t length = space.shape()[d];
      if (length == 1) continue;
      std::vector<Digit> of_dimension;
      for (const DimensionCut& cut : type.dimensions[d]) {
        const int64_t size = space.atoms()[cut.atom].size;
        if (cut.stride == 0) uneven_.push_back({below, below * length});
        of_dimension.push_back(
            cut.stride == 0 ? Digit{below, below * length, cut.atom}
                            : Digit{cut.stride * below, cut.stride * below * size, cut.atom});
      }
      digits_.insert(digits_.begin(), of_dimension.begin(), of_dimension.end());
      below *= length;
    }
  }

  const std::vector<Digit>& digits() const { return digits_; }
  // Dimensions that do not divide, from low to high.
  const std::vector<IndexPart>& uneven() const { return uneven_; }

 private:
  std::vector<Digit> digits_;
  std::vector<IndexPart> uneven_;
};

// Where an index may be cut apart so that every digit of all types is in one part: ascending.
std::vector<int64_t> Boundaries(int64_t elements, std::span<const TypeDigits> types,
                                std::span<const int64_t> more) {
  std::vector<int64_t> all = {1, elements};
  all.insert(all.end(), more.begin(), more.end());
  for (const TypeDigits& type : types) {
    for (const Digit& digit : type.digits()) {
      all.push_back(digit.low);
      all.push_back(digit.high);
    }
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  std::vector<int64_t> kept;
  for (const int64_t boundary : all) {
    const bool is_comparable = std::ranges::all_of(
        all, [&](int64_t other) { return other % boundary == 0 || boundary % other == 0; });
    const bool is_inside = std::ranges::any_of(types, [&](const TypeDigits& type) {
      return std::ranges::any_of(type.digits(), [&](const Digit& digit) {
        return digit.low < boundary && boundary < digit.high;
      });
    });
    if (is_comparable && !is_inside) kept.push_back(boundary);
  }
  return kept;
}

bool Touches(const TypeDigits& type, int64_t low, int64_t high) {
  return std::ranges::any_of(
      type.digits(), [&](const Digit& digit) { return digit.low < high && low < digit.high; });
}

bool IsUneven(const TypeDigits& type, int64_t low, int64_t high) {
  return std::ranges::any_of(
      type.uneven(), [&](const IndexPart& part) { return part.low < high && low < part.high; });
}

// The parts of an index, major first, that both types cut from their tops on or not at all; a slab
// is one by itself.
std::vector<IndexPart> PartsOf(int64_t elements, std::span<const TypeDigits> types,
                               const SlabPlace& place, int64_t slabs) {
  const auto is_cut = [&](int64_t low, int64_t high) {
    return std::ranges::any_of(types,
                               [&](const TypeDigits& type) { return Touches(type, low, high); });
  };
  const int64_t slab_high = place.stride * place.length;
  const int64_t slab_low = slab_high / slabs;
  std::vector<int64_t> more;
  if (slabs > 1) more = {slab_low, slab_high};
  const std::vector<int64_t> boundaries = Boundaries(elements, types, more);
  std::vector<IndexPart> parts;
  for (size_t i = boundaries.size() - 1; i > 0; --i) {
    const auto [low, high] = std::pair(boundaries[i - 1], boundaries[i]);
    const bool is_slab = slabs > 1 && low == slab_low && high == slab_high;
    // What neither cuts is one part with its neighbour.
    if (!is_slab && !is_cut(low, high) && !parts.empty() && !parts.back().is_slab &&
        parts.back().low == high && !is_cut(parts.back().low, parts.back().high)) {
      parts.back().low = low;
    } else {
      parts.push_back({.low = low, .high = high, .is_slab = is_slab});
    }
  }
  return parts;
}

std::string AxisName(int32_t atom) { return absl::StrCat("a", atom); }

// Atoms that cut a part from its top on, major first; nothing where its cuts are elsewhere.
std::optional<std::vector<std::string>> CutsOf(const TypeDigits& type, const IndexPart& part) {
  std::vector<std::string> axes;
  int64_t top = part.high;
  const bool is_uneven = IsUneven(type, part.low, part.high);
  for (const Digit& digit : type.digits()) {
    if (digit.high <= part.low || digit.low >= part.high) continue;
    if (!is_uneven && (digit.high != top || digit.low % part.low != 0)) return std::nullopt;
    axes.push_back(AxisName(digit.atom));
    top = digit.low;
  }
  return axes;
}

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

// The most major part that leaves slabs enough, else the longest.
void Lowering::FindSlabPlace() {
  constexpr int64_t kSlabsWanted = 64;
  std::vector<TypeDigits> types;
  for (const Move& move : moves_) {
    types.emplace_back(space_, move.before);
    types.emplace_back(space_, move.after);
  }
  const std::vector<int64_t> boundaries = Boundaries(space_.shape().elements(), types, {});
  slab_place_ = {};
  for (size_t i = 1; i < boundaries.size(); ++i) {
    const auto [low, high] = std::pair(boundaries[i - 1], boundaries[i]);
    const bool is_cut = std::ranges::any_of(
        types, [&](const TypeDigits& type) { return Touches(type, low, high); });
    if (is_cut) continue;
    const int64_t length = high / low;
    if (length >= kSlabsWanted || length > slab_place_.length) {
      slab_place_ = {.stride = low, .length = length};
    }
  }
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
