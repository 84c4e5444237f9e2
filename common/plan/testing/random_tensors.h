#pragma once

#include "common/plan/plan.h"
#include "common/plan/tensor_table.h"
#include "common/plan/testing/random_source.h"

#include <cstdint>
#include <memory>

namespace crossmesh {

struct RandomTensorsOptions {
  int64_t slots_max = 12;  // per mesh
  int64_t hosts_max = 4;   // per side
  int64_t tensors_max = 6;
  int64_t length_max = 13;  // of a dimension
  int rank_max = 4;
  bool explicit_tiles = true;
  bool sub_meshes = true;   // some tensors live on a part of a mesh only
  bool replicas = true;     // some destination axes may count replicas
  bool conversions = true;  // some tensors have another type at the destination
};

// A random table that Slicing accepts: meshes of one to three axes over hosts "a", "b", ..., whose
// devices are disjoint, overlapping or the same on both sides; axis layouts under every uneven rule
// with unused axes left to replicate, and explicit tiles, which cover the tensor on the source and
// overlap now and then; scalars, zero-sized dimensions, all types, tensors that are converted, and
// some that are not moved.
TensorTable RandomTensorTable(RandomSource& random, const RandomTensorsOptions& options = {});

// A random plan that Prove accepts: every class is cut at random element boundaries, every piece
// goes down a random tree from a random holder, and the pieces go in random order; some chunks are
// small. `slicing` must be of `tensors`.
Plan::Spec RandomPlan(RandomSource& random, const std::shared_ptr<const TensorTable>& tensors,
                      const std::shared_ptr<const Slicing>& slicing);

// Fills in the places of all hops: in each channel, relays come in the order of the plan.
void PlaceHopsInPlanOrder(Plan::Spec& spec);

}  // namespace crossmesh
