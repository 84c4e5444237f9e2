#pragma once

#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/reduction.h"
#include "common/mesh/shape.h"
#include "common/plan/tensor_table.h"
#include "planner/redistribute/derivation.h"
#include "planner/redistribute/planning/index_parts.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// A step of a derivation as a move from one layout to another, after which summands may be reduced.
// The tensor has another shape here, in which each cut is all of a dimension: a dimension of 8 that
// is cut at stride 2 into 2 is [2, 2, 2], cut in the middle. Local arrays lie in memory as before.
struct LoweredStep {
  Shape shape;  // of a slab
  AxisLayout source;
  AxisLayout destination;
  Slab slab;  // but for in_source and in_destination
  std::optional<Reduction> reduction = std::nullopt;
};

// What a derivation comes to. Slices move nothing, and are done together with the step after them,
// or the last one; an all-reduce is a reduction to parts of the array, which are then gathered. A
// partial sum is a tensor with one more dimension, cut over the devices that have summands, and a
// reduction brings its parts together.
class Lowering {
 public:
  explicit Lowering(const Derivation& derivation);

  // Of the axes of the mesh that all steps are on: atoms, row-major.
  std::vector<Axis> axes() const;
  int step_count() const { return static_cast<int>(moves_.size()); }
  // Of each step, what becomes of summands that it brings.
  std::vector<std::optional<Reduction>> reductions() const;
  // Bytes of the fullest device's largest array that is neither its source nor its destination,
  // with summands; 0 where there is none.
  int64_t array_bytes() const;
  // The most summands that a step brings to a device; 1 where there are no sums.
  int64_t summands() const;
  SlabPlace slab_place() const { return slab_place_; }
  // Whether the derivation has a step in which cuts of both sides do not divide each other and one
  // is strided. Then the steps are reductions, if any, and one move.
  bool is_direct() const { return is_direct_; }

  // With the tensor in so many slabs. InvalidArgument when slab_place has not as many;
  // ResourceExhausted when a shape would have too many dimensions.
  absl::StatusOr<std::vector<LoweredStep>> Steps(int64_t slabs) const;

 private:
  struct Move {
    LocalType before;
    LocalType after;
    std::vector<int32_t> reduced;  // atoms
  };

  void Lower(std::span<const RedistributionStep> steps);
  void LowerDirectly(bool splits);
  bool Fits() const;
  void AddMove(LocalType before, LocalType after);
  LocalType SplitType(const LocalType& after, std::span<const int32_t> atoms) const;
  bool SplitDimension(int64_t length, std::span<const int32_t> atoms,
                      std::vector<DimensionCut>& cuts) const;
  void FindSlabPlace();
  absl::StatusOr<LoweredStep> StepOf(const Move& move, int64_t slabs) const;

  const TypeSpace& space_;
  std::vector<Move> moves_;
  SlabPlace slab_place_;
  bool is_direct_ = false;
};

}  // namespace crossmesh
