#pragma once

#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// Where the packed bytes of a class may be cut: between elements. Immutable; keeps references to
// its arguments.
//
// Example: a class with 3 bytes of a U8 tensor and then 8 of an F32 tensor may be cut at 0, 1, 2,
// 3, 7 and 11.
class ElementBoundaries {
 public:
  // Cost: linear in the classes of all groups.
  ElementBoundaries(const TensorTable& tensors, const Slicing& slicing);

  // The last boundary that is not after `offset`, 0 <= offset <= bytes of the class. Cost:
  // constant where all tensors' shares of the class are multiples of its largest element, else
  // linear in the tensors before the offset.
  int64_t AtOrBefore(ClassIndex slice_class, int64_t offset) const;
  bool IsBoundary(ClassIndex slice_class, int64_t offset) const {
    return AtOrBefore(slice_class, offset) == offset;
  }

 private:
  // What the class's elements have in common.
  struct Elements {
    uint8_t smallest = 8;  // bytes of an element
    uint8_t largest = 1;
    bool aligned = true;  // every tensor's share is a multiple of `largest`
  };

  const TensorTable& tensors_;
  const Slicing& slicing_;
  std::vector<Elements> elements_;  // [class]
};

}  // namespace crossmesh
