#include "planner/redistribute/local_type.h"

#include "common/base/check.h"
#include "common/mesh/layout.h"

#include <algorithm>
#include <numeric>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

TypeSpace::TypeSpace(const RedistributionRequest& request, const AtomSizes& sizes)
    : axes_(request.axes), shape_(request.shape), item_bytes_(request.item_bytes) {
  for (const Axis& axis : axes_) devices_ *= axis.size;
  int64_t after = devices_;  // devices that one coordinate of an atom has
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    int64_t before = 1;
    for (const int64_t size : sizes[axis]) {
      after /= size;
      atoms_.push_back({.axis = static_cast<int32_t>(axis), .before = before, .size = size});
      device_strides_.push_back(after);
      before *= size;
    }
    CHECK_EQ(before, axes_[axis].size) << "axis " << axes_[axis].name;
  }
  for (const PartialAxis& partial : request.source.partial) reduction_ = partial.reduction;
  source_ = TypeOf(request.source);
  destination_ = TypeOf(request.destination);
}

void TypeSpace::AppendAtoms(const SubAxis& part, std::vector<int32_t>& atoms) const {
  for (int32_t atom = 0; atom < atom_count(); ++atom) {
    const SubAxis& candidate = atoms_[atom];
    if (candidate.axis == part.axis && candidate.before >= part.before &&
        candidate.before < part.before * part.size) {
      atoms.push_back(atom);
    }
  }
}

LocalType TypeSpace::TypeOf(const RedistributionEnd& end) const {
  LocalType type;
  for (int dimension = 0; dimension < shape_.rank(); ++dimension) {
    std::vector<int32_t> atoms;
    for (const SubAxis& part : end.dimensions[dimension]) AppendAtoms(part, atoms);
    std::vector<DimensionCut>& cuts = type.dimensions.emplace_back();
    for (const int32_t atom : atoms) cuts.push_back({.atom = atom});
    if (shape_[dimension] % Parts(cuts) != 0) {
      CutByRule(end, dimension, cuts);
      continue;
    }
    int64_t stride = shape_[dimension];
    for (DimensionCut& cut : cuts) cut.stride = stride /= atoms_[cut.atom].size;
  }
  for (const PartialAxis& partial : end.partial) AppendAtoms(partial.part, type.partial);
  std::ranges::sort(type.partial);
  return type;
}

// By kNestedChunk each level cuts what the one before it has left, whatever atoms it consists of;
// of one level it is kChunk.
void TypeSpace::CutByRule(const RedistributionEnd& end, int dimension,
                          std::vector<DimensionCut>& cuts) const {
  std::vector<int64_t> levels;
  if (!end.levels.empty()) levels = end.levels[dimension];
  if (end.levels.empty()) {
    for (const SubAxis& part : end.dimensions[dimension]) levels.push_back(part.size);
  }
  std::erase(levels, 1);
  const bool nested = end.rule == UnevenRule::kNestedChunk && levels.size() > 1;
  size_t level = 0;
  int64_t within = 1;  // parts of this level that atoms so far make
  for (DimensionCut& cut : cuts) {
    cut.rule = end.rule == UnevenRule::kNestedChunk && !nested ? UnevenRule::kChunk : end.rule;
    cut.joined = nested && within > 1;
    within *= atoms_[cut.atom].size;
    if (level < levels.size() && within == levels[level]) {
      ++level;
      within = 1;
    }
  }
}

UnevenRule TypeSpace::RuleOf(const LocalType& type) const {
  for (const std::vector<DimensionCut>& cuts : type.dimensions) {
    if (!cuts.empty() && cuts.front().stride == 0) return cuts.front().rule;
  }
  return UnevenRule::kExact;
}

absl::Status TypeSpace::Validate(const LocalType& type) const {
  if (static_cast<int>(type.dimensions.size()) != shape_.rank()) {
    return absl::InvalidArgumentError(absl::StrCat("local type: expected ", shape_.rank(),
                                                   " dimensions, found ", type.dimensions.size()));
  }
  std::vector<int> uses(atoms_.size(), 0);
  for (const int32_t atom : type.partial) ++uses[atom];
  for (int dimension = 0; dimension < shape_.rank(); ++dimension) {
    int64_t left = shape_[dimension];
    const std::vector<DimensionCut>& cuts = type.dimensions[dimension];
    for (const DimensionCut& cut : cuts) {
      ++uses[cut.atom];
      const bool even = cut.stride > 0 && left % (cut.stride * atoms_[cut.atom].size) == 0;
      // Rules for uneven lengths apply to a dimension as a whole.
      const bool by_rule = cut.stride == 0 && cuts.front().stride == 0;
      if (!even && !by_rule) {
        return absl::InvalidArgumentError(
            absl::StrCat("local type ", Text(type), ": expected strides of dimension ", dimension,
                         " that divide each other and ", shape_[dimension], ", found ", cut.stride,
                         " after ", left));
      }
      left = cut.stride;
    }
  }
  for (int32_t atom = 0; atom < atom_count(); ++atom) {
    if (uses[atom] <= 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("local type ", Text(type), ": expected ",
                                                   ToString(atoms_[atom], axes_),
                                                   " in one place, found ", uses[atom]));
  }
  return absl::OkStatus();
}

int64_t TypeSpace::Parts(const std::vector<DimensionCut>& cuts) const {
  int64_t parts = 1;
  for (const DimensionCut& cut : cuts) parts *= atoms_[cut.atom].size;
  return parts;
}

int64_t TypeSpace::LocalElements(const LocalType& type) const {
  int64_t elements = 1;
  for (int dimension = 0; dimension < shape_.rank(); ++dimension) {
    // Under every rule no part is longer than the rounded-up share.
    const int64_t parts = Parts(type.dimensions[dimension]);
    elements *= (shape_[dimension] + parts - 1) / parts;
  }
  return elements;
}

int64_t TypeSpace::PartOf(const std::vector<DimensionCut>& cuts, int64_t device) const {
  int64_t part = 0;
  for (const DimensionCut& cut : cuts) {
    part = part * atoms_[cut.atom].size + Coordinate(device, cut.atom);
  }
  return part;
}

std::vector<Interval> TypeSpace::IndicesOf(const LocalType& type, int dimension,
                                           int64_t part) const {
  const std::vector<DimensionCut>& cuts = type.dimensions[dimension];
  std::vector<int64_t> sizes;
  for (const DimensionCut& cut : cuts) {
    if (cut.joined) {
      sizes.back() *= atoms_[cut.atom].size;
    } else {
      sizes.push_back(atoms_[cut.atom].size);
    }
  }
  if (!cuts.empty() && cuts.front().stride == 0) {
    return {PartsOfDimension(cuts.front().rule, shape_[dimension], sizes)[part]};
  }
  std::vector<int64_t> coordinates(cuts.size());
  for (size_t i = cuts.size(); i-- > 0; part /= sizes[i]) coordinates[i] = part % sizes[i];
  // From the most major digit on, each interval is cut to those of the next digit.
  std::vector<Interval> indices = {{0, shape_[dimension]}};
  for (size_t i = 0; i < cuts.size(); ++i) {
    std::vector<Interval> finer;
    const int64_t period = cuts[i].stride * sizes[i];
    for (const Interval& interval : indices) {
      for (int64_t begin = interval.begin; begin < interval.end; begin += period) {
        const int64_t first = begin + coordinates[i] * cuts[i].stride;
        finer.push_back({first, first + cuts[i].stride});
      }
    }
    indices = std::move(finer);
  }
  return indices;
}

bool TypeSpace::IsContiguous(const LocalType& type, int dimension) const {
  int64_t stride = shape_[dimension];
  for (const DimensionCut& cut : type.dimensions[dimension]) {
    if (cut.stride == 0) return true;
    stride /= atoms_[cut.atom].size;
    if (cut.stride != stride) return false;
  }
  return true;
}

std::string TypeSpace::AtomsText(std::span<const int32_t> atoms) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < atoms.size();) {
    SubAxis joined = atoms_[atoms[i]];
    for (++i; i < atoms.size(); ++i) {
      const SubAxis& next = atoms_[atoms[i]];
      if (next.axis != joined.axis || next.before != joined.before * joined.size) break;
      joined.size *= next.size;
    }
    names.push_back(ToString(joined, axes_));
  }
  return names.empty() ? "-" : absl::StrJoin(names, "*");
}

std::string TypeSpace::Text(const LocalType& type) const {
  std::vector<std::string> dimensions;
  for (int dimension = 0; dimension < shape_.rank(); ++dimension) {
    std::vector<int32_t> atoms;
    std::vector<std::string> strided;
    for (const DimensionCut& cut : type.dimensions[dimension]) {
      atoms.push_back(cut.atom);
      strided.push_back(absl::StrCat(ToString(atoms_[cut.atom], axes_), "@", cut.stride));
    }
    dimensions.push_back(IsContiguous(type, dimension) ? AtomsText(atoms)
                                                       : absl::StrJoin(strided, "*"));
  }
  std::string text = absl::StrCat("[", absl::StrJoin(dimensions, ", "), "]");
  if (const UnevenRule rule = RuleOf(type); rule != UnevenRule::kExact) {
    absl::StrAppend(&text, " ", UnevenRuleName(rule));
  }
  if (!type.partial.empty()) {
    absl::StrAppend(&text, " partial ", PartialReductionName(reduction_), " {",
                    AtomsText(type.partial), "}");
  }
  return text;
}

}  // namespace crossmesh
