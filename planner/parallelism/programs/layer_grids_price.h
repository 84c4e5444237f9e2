#pragma once

#include "planner/parallelism/layer_grids.h"
#include "planner/parallelism/memory_model.h"
#include "planner/parallelism/programs/joint_cost.h"
#include "planner/parallelism/step_model.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Where a part of a model begins on another grid than the one before it has.
struct JointPrice {
  PartPlace place;
  Grid from;
  Grid to;
  JointMove forward;
  JointMove backward;
  int64_t messages = 0;  // each way, in a step

  double seconds() const {  // of a step; nothing hides them
    return static_cast<double>(messages) * (forward.seconds + backward.seconds);
  }
};

// A step of a training whose layers have grids of their own.
struct LayerGridsPrice {
  LayerGrids grids;
  PartsOnGrids parts;
  std::vector<GridShape> shapes;   // by grid
  StepPrice step;                  // of everything but joints
  std::vector<StepPrice> of_grid;  // what of it each grid's parts compute, expose and hide
  std::vector<JointPrice> joints;  // in the order of a forward pass
  MemoryTerms memory;
  double joint_bytes = 0;  // of buffers

  double joint_seconds() const;
  double seconds() const { return step.seconds() + joint_seconds(); }
  double memory_bytes() const { return memory.total() + joint_bytes; }
};

// Prices each part as StepModel does on its grid, and what the residual stream takes from grid to
// grid. Weights of the first matrix after a joint are gathered behind what is computed on the grid
// before it. Microbatches are as many on all grids: those of the training's size on `grids.grid`;
// without a size, of as many as fit the number that takes least time.
//
// InvalidArgument, naming the grid: what PartsOf and CheckGrid find; another number of devices than
// there are rates of; axes that programs do not have; an order of the axes of its own, ZeRO,
// vectors on the diagonal, or anything computed again. ResourceExhausted, with the least memory:
// nothing fits, unless `over_memory`.
absl::StatusOr<LayerGridsPrice> PriceLayerGrids(const StepModel& step, const LayerGrids& grids,
                                                bool over_memory = false);

}  // namespace crossmesh
