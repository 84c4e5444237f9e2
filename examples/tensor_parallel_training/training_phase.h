#pragma once

#include "common/mesh/device.h"
#include "examples/tensor_parallel_training/parameters.h"
#include "planner/parallelism/grid.h"
#include "planner/parallelism/layer_grids.h"
#include "planner/parallelism/programs/grid_program.h"
#include "planner/parallelism/training.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh::grid_training {

// Some steps of a training on one grid, or on stages with a grid each.
struct TrainingPhase {
  std::vector<LayerGrids> grids;  // of stages, or of ranks that have several
  int chunks = 1;                 // stages of a rank
  ActivationForm form = ActivationForm::kReplicated;
  VectorForm vectors = VectorForm::kReplicated;
  int32_t microbatches = 1;
  Overlaps overlaps = {};
  int64_t cached_layers = 0;
  int32_t pending_scatters = 2;
  int steps = 20;
  bool goes_on = false;  // from where the phase before has ended; else from InitialState

  int64_t devices() const;
};

// "r=2,z=2|c=2,r=2+r=4@mlp scattered diagonal chunks=2 microbatches=4 overlaps=none cached=1
// pending=1 steps=10 goes_on": grids of ranks, as ParseLayerGrids reads them, and what is not as
// above. Of
// `overlaps`: none, most (as they are if nothing is said), all. InvalidArgument with the word.
absl::StatusOr<TrainingPhase> ParsePhase(absl::string_view text);

// What MakeGridProgram is to make: stages on the first devices, in order, of as many layers each;
// several by eager 1F1B, and of ranks with several by interleaved 1F1B. As MeshOfGrid;
// InvalidArgument: too few devices, layers that stages do not divide; what the schedule finds.
absl::StatusOr<GridProgramRequest> RequestOf(const TrainingPhase& phase,
                                             const TrainingSettings& settings,
                                             std::span<const DeviceId> devices);

}  // namespace crossmesh::grid_training
