#pragma once

#include "common/mesh/data_type.h"
#include "common/mesh/device.h"
#include "common/mesh/mesh.h"
#include "planner/layers/layer_program.h"
#include "planner/parallelism/device_profile.h"
#include "planner/parallelism/grid.h"
#include "planner/parallelism/layer_grids.h"
#include "planner/parallelism/programs/grid_mesh.h"
#include "planner/parallelism/training.h"
#include "planner/parallelism/transformer.h"
#include "planner/pipeline/schedule.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// A part of the model on devices of its own.
struct GridStage {
  Grid grid;
  std::shared_ptr<const Mesh> mesh;  // as MeshOfGrids makes it of all its grids
  int64_t layers = 0;
  std::vector<GridOfLayers> others = {};  // as LayerGrids; layers are the model's
};

// The parts of a stage, on their grids: `first_layer` is the stage's first one. As PartsOf.
absl::StatusOr<PartsOnGrids> PartsOfStage(const std::vector<GridStage>& stages, size_t stage);

struct StageCounts {
  int64_t layers = 0;   // of all stages
  int64_t of_rank = 1;  // stages of a rank, as LoopedRank places them
};
// The stages of a grid, of as many layers each, on its devices in the order c, r, z, pipeline,
// data. InvalidArgument: as MeshOfGrid, but for the pipeline axis; layers that stages do not
// divide.
absl::StatusOr<std::vector<GridStage>> StagesOfGrid(const Grid& grid,
                                                    std::span<const DeviceId> devices,
                                                    const StageCounts& counts);

// A training step, to be made a program.
struct GridProgramRequest {
  Transformer model;  // with a vocabulary
  Training training;  // `microbatch` counts for nothing: `microbatches` does
  std::vector<GridStage> stages;
  int32_t microbatches = 1;
  // Of several stages, which are on the ranks whose ops they are, with a mesh for each rank. Empty:
  // forward and backward of one microbatch after the other.
  Schedule schedule;
  DataType type = DataType::kBF16;
  DeviceProfile device;
};

// The step as ops and transfers (docs/grids.md): for each matrix of a block its three products,
// with the collectives of its grid around them, in the order that the overlaps ask for; then sums
// over copies. Names of ops are those of GridOp. A collective whose group is one device is left
// out; ops are the same on every grid of one form. Where the next part of a stage has another grid,
// the residual stream goes there by the cheapest collectives (leave, arrive, of the matrix that
// comes next), and its gradient back. The process that computes keeps what a later op
// needs, gathered weights of the other half, or of the layers that are cached, among it.
//
// InvalidArgument: what CheckGrid finds, with the stage; no stages; layers that are not the
// model's; no vocabulary, or one that r does not cut; tensors larger
// than a Shape; experts; an order of the axes of its own;
// ZeRO; recomputing; scattered inputs that are to be gathered again; halves of an odd microbatch;
// what PartsOf finds; several grids in a stage beside vectors on the diagonal; what
// CheckStageSchedule finds; stages of a rank on several meshes. Cost: linear in the ops.
absl::StatusOr<LayerProgram> MakeGridProgram(const GridProgramRequest& request);

}  // namespace crossmesh
