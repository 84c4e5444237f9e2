#include "planner/redistribute/overlap.h"

#include <algorithm>

namespace crossmesh {

int64_t Overlap::Memo::Of(int64_t key, absl::FunctionRef<int64_t()> count) {
  if (key == last_key_) return last_;
  const auto [found, added] = known_.try_emplace(key, 0);
  if (added) found->second = count();
  last_key_ = key;
  return last_ = found->second;
}

Overlap::Overlap(const TypeSpace& space, const LocalType& before, const LocalType& after)
    : space_(space),
      before_(before),
      after_(after),
      seen_(space.shape().rank()),
      lengths_(space.shape().rank()) {
  for (const std::vector<DimensionCut>& cuts : after.dimensions) {
    parts_after_.push_back(space.Parts(cuts));
  }
}

int64_t Overlap::Common(int dimension, int64_t before, int64_t after) {
  return seen_[dimension].Of(before * parts_after_[dimension] + after,
                             [&] { return CountCommon(dimension, before, after); });
}

int64_t Overlap::CountCommon(int dimension, int64_t before, int64_t after) const {
  const std::vector<Interval> held = space_.IndicesOf(before_, dimension, before);
  const std::vector<Interval> wanted = space_.IndicesOf(after_, dimension, after);
  int64_t common = 0;
  for (size_t i = 0, j = 0; i < held.size() && j < wanted.size();) {
    common += std::max<int64_t>(Intersect(held[i], wanted[j]).length(), 0);
    (held[i].end < wanted[j].end ? i : j)++;
  }
  return common;
}

int64_t Overlap::Elements(int64_t holder, int64_t receiver) {
  int64_t elements = 1;
  for (int dimension = 0; dimension < space_.shape().rank(); ++dimension) {
    elements *= Common(dimension, space_.PartOf(before_.dimensions[dimension], holder),
                       space_.PartOf(after_.dimensions[dimension], receiver));
    if (elements == 0) break;
  }
  return elements;
}

int64_t Overlap::LengthAfter(int dimension, int64_t part) {
  return lengths_[dimension].Of(part, [&] { return CountLength(dimension, part); });
}

int64_t Overlap::CountLength(int dimension, int64_t part) const {
  int64_t length = 0;
  for (const Interval& indices : space_.IndicesOf(after_, dimension, part)) {
    length += indices.length();
  }
  return length;
}

int64_t Overlap::ElementsAfter(int64_t device) {
  int64_t elements = 1;
  for (int dimension = 0; dimension < space_.shape().rank(); ++dimension) {
    elements *= LengthAfter(dimension, space_.PartOf(after_.dimensions[dimension], device));
  }
  return elements;
}

NeediestDevice FindNeediestDevice(const TypeSpace& space, const LocalType& before,
                                  const LocalType& after) {
  if (before == after) return {};
  if (before.partial != after.partial) return {.missing_elements = space.LocalElements(after)};
  Overlap overlap(space, before, after);
  NeediestDevice neediest;
  const int64_t most = space.LocalElements(after);
  for (int64_t device = 0; device < space.devices(); ++device) {
    if (neediest.missing_elements == most) break;
    const int64_t missing = overlap.ElementsAfter(device) - overlap.Elements(device, device);
    if (missing > neediest.missing_elements) neediest = {device, missing};
  }
  return neediest;
}

}  // namespace crossmesh
