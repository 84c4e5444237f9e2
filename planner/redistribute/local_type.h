#pragma once

#include "common/mesh/box.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/redistribution_request.h"
#include "planner/redistribute/sub_axis.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// One digit of a dimension's index that is a device's coordinate: index i is held by the devices
// whose coordinate on the atom is (i / stride) % size. The most major digits of a dimension make
// contiguous blocks, others strided ones (DTensor's _StridedShard). Stride 0: the dimension does
// not divide, and all of its cuts are by a rule instead, in the listed order.
struct DimensionCut {
  int32_t atom = 0;
  int64_t stride = 0;
  UnevenRule rule = UnevenRule::kExact;  // where the stride is 0
  bool joined = false;  // under kNestedChunk, to the cut before: together they are one axis
  friend bool operator==(const DimensionCut&, const DimensionCut&) = default;
};

// How a tensor lies at one point of a derivation: the local type of arXiv 2112.01075, with strides
// and partial sums added. An atom that is not mentioned replicates.
struct LocalType {
  std::vector<std::vector<DimensionCut>> dimensions;  // strides decrease within a dimension
  std::vector<int32_t> partial;                       // atoms, ascending
  friend bool operator==(const LocalType&, const LocalType&) = default;
};

// What local types of one request mean: the mesh with its axes split into atoms, and the tensor.
// Immutable.
class TypeSpace {
 public:
  // `request` must be valid, and `sizes` a splitting of its axes that has its parts.
  TypeSpace(const RedistributionRequest& request, const AtomSizes& sizes);

  const std::vector<Axis>& axes() const { return axes_; }
  const std::vector<SubAxis>& atoms() const { return atoms_; }
  int32_t atom_count() const { return static_cast<int32_t>(atoms_.size()); }
  const Shape& shape() const { return shape_; }
  int64_t item_bytes() const { return item_bytes_; }
  int64_t devices() const { return devices_; }
  const LocalType& source() const { return source_; }
  const LocalType& destination() const { return destination_; }
  PartialReduction reduction() const { return reduction_; }

  // The coordinate of a device on an atom.
  int64_t Coordinate(int64_t device, int32_t atom) const {
    return device / device_strides_[atom] % atoms_[atom].size;
  }
  int64_t device_stride(int32_t atom) const { return device_strides_[atom]; }

  // InvalidArgument unless each atom is in one place and the strides of every dimension are digits
  // of its length: size * stride divides the stride before, or the length.
  absl::Status Validate(const LocalType& type) const;
  // The product of the sizes of a dimension's cuts.
  int64_t Parts(const std::vector<DimensionCut>& cuts) const;
  // By which a dimension is cut that does not divide, if there is any.
  UnevenRule RuleOf(const LocalType& type) const;
  // Elements of the largest local array.
  int64_t LocalElements(const LocalType& type) const;
  int64_t LocalBytes(const LocalType& type) const { return LocalElements(type) * item_bytes_; }
  // Which part of a dimension a device holds: its coordinates as a number, major first.
  int64_t PartOf(const std::vector<DimensionCut>& cuts, int64_t device) const;
  // The indices of a dimension that part holds, ascending.
  std::vector<Interval> IndicesOf(const LocalType& type, int dimension, int64_t part) const;
  bool IsContiguous(const LocalType& type, int dimension) const;

  // E.g. "[data*model:(1)2, -] partial sum {model:(2)2}"; a strided dimension has its strides:
  // "[data@4*model@1, -]"; where one does not divide, its rule follows: "[data, -] chunk".
  std::string Text(const LocalType& type) const;
  // E.g. "data*model:(1)2"; neighbours are joined to whole parts.
  std::string AtomsText(std::span<const int32_t> atoms) const;

 private:
  LocalType TypeOf(const RedistributionEnd& end) const;
  void CutByRule(const RedistributionEnd& end, int dimension,
                 std::vector<DimensionCut>& cuts) const;
  // Appends the atoms of which a part of an axis consists, major first.
  void AppendAtoms(const SubAxis& part, std::vector<int32_t>& atoms) const;

  std::vector<Axis> axes_;
  std::vector<SubAxis> atoms_;
  std::vector<int64_t> device_strides_;  // devices between neighbours on each atom
  Shape shape_;
  int64_t item_bytes_;
  int64_t devices_ = 1;
  PartialReduction reduction_ = PartialReduction::kSum;
  LocalType source_;
  LocalType destination_;
};

}  // namespace crossmesh
