#pragma once

#include "common/mesh/reduction.h"
#include "common/plan/step_collective.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace crossmesh {

inline constexpr int32_t kCourseInstancesMax = 4096;
inline constexpr int32_t kCourseStepsMax = 64;

// The steps by which some tensors of a plan go from their source tiles to their destination tiles,
// by way of arrays that exist only meanwhile. Each step is a plan of its own, over a table of its
// own; the first one reads source tiles and the last one fills destination tiles, all others move
// from array to array. A step may bring summands, which are then reduced where they have come: its
// tensors have first dimensions that number summands, and those of which a destination tile has all
// are gone afterwards.
//
// A course runs as many times as it has instances, each time with other tensors of the manifest, or
// other slabs of them (Slab), so that its arrays are small, and the steps of several instances
// overlap. All steps have the same tensors in the same order; what differs is their shape, by which
// a local array is seen: it lies in memory as it did before.
//
// `Move` is what a step moves by: a Plan, or a WorkerPart of one.
template <typename Move>
struct Course {
  struct Step {
    std::shared_ptr<const Move> move;
    std::optional<Reduction> reduction = std::nullopt;
    // What GPUs may call in place of the move and the reduction, in the groups that the step's
    // layouts say. There is no array of summands then. Host memory does not look at it.
    std::optional<StepCollective> collective = std::nullopt;
    // What has come is one summand, or the sum of some, to which each device adds its own one, out
    // of its source tile: a sum that goes round a ring. With a reduction, in the first steps of a
    // course, the last of which leaves sums of all (own_summand.h).
    bool adds_own = false;
  };

  int32_t instances = 1;
  int32_t buffers = 1;  // instances that have arrays at a time
  // [instance][tensor of the steps' tables]: which tensor of the manifest that is. An instance has
  // the slab of its own number, modulo the tensor's slabs.
  std::vector<int32_t> tensors;
  std::vector<Step> steps;
  // An instance's source tiles are given back when its first step has moved, so that they need not
  // be there beside the destination tiles that the instance fills.
  bool releases_source = false;

  int32_t tensors_of_instance() const { return static_cast<int32_t>(tensors.size()) / instances; }
};

}  // namespace crossmesh
