#include "common/plan/element_boundaries.h"

#include <algorithm>

namespace crossmesh {

ElementBoundaries::ElementBoundaries(const TensorTable& tensors, const Slicing& slicing)
    : tensors_(tensors), slicing_(slicing), elements_(slicing.classes().size()) {
  for (int32_t g = 0; g < slicing.grids(); ++g) {
    const auto item_bytes = static_cast<uint8_t>(tensors.ItemBytesOf(Side::kDestination, g));
    for (const ClassIndex c : slicing.grid(g).classes) {
      elements_[c].smallest = std::min(elements_[c].smallest, item_bytes);
      elements_[c].largest = std::max(elements_[c].largest, item_bytes);
    }
  }
  for (int32_t g = 0; g < slicing.grids(); ++g) {
    const GroupGrid& grid = slicing.grid(g);
    for (size_t i = 0; i < grid.classes.size(); ++i) {
      Elements& elements = elements_[grid.classes[i]];
      if (grid.bytes[i] % elements.largest != 0) elements.aligned = false;
    }
  }
}

int64_t ElementBoundaries::AtOrBefore(ClassIndex slice_class, int64_t offset) const {
  const Elements& elements = elements_[slice_class];
  if (elements.smallest == elements.largest ||
      (elements.aligned && offset % elements.largest == 0)) {
    return offset - offset % elements.largest;
  }
  int64_t begin = 0;
  for (const int32_t group : tensors_.group_of_tensor()) {
    if (group == -1) continue;
    const GroupGrid& grid = slicing_.grid(group);
    const int64_t place = grid.FindClass(slice_class);
    if (place == -1) continue;
    if (offset < begin + grid.bytes[place]) {
      return offset - (offset - begin) % tensors_.ItemBytesOf(Side::kDestination, group);
    }
    begin += grid.bytes[place];
  }
  return begin;
}

}  // namespace crossmesh
