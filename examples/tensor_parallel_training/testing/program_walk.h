#pragma once

#include "common/mesh/box.h"
#include "examples/tensor_parallel_training/grid_device.h"
#include "examples/tensor_parallel_training/parameters.h"
#include "planner/layers/layer_program.h"
#include "planner/layers/planned_layers.h"
#include "planner/parallelism/programs/grid_program.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh::grid_training {

// Carries out a grid's program for all devices of all stages in one process: the reference mode. An
// op is done when what it needs has been given and there is room for what it gives, on all devices
// of its stage one after the other; its messages are carried at once, in the plainest way: the
// whole tensor is put together from the tiles of every summand, summands are reduced in the order
// of slots, and the result is cut into the other layout's tiles. So the order of every sum is
// fixed. Thread-compatible.
class ProgramWalk {
 public:
  // What MakeGridProgram says; its transfers are F32. It begins with
  // InitialState.
  static absl::StatusOr<ProgramWalk> Create(const GridProgramRequest& request,
                                            const Optimizer& optimizer);
  // With another program of the same request.
  ProgramWalk(LayerProgram program, const GridProgramRequest& request, const Optimizer& optimizer);

  // From now on messages are carried by the steps of the plans of workers, as CarryByPlan says:
  // what the walk computes then has the bits of a training on workers. `planned` is of the same
  // program.
  void FollowPlans(std::shared_ptr<const PlannedLayers> planned) { planned_ = std::move(planned); }

  // A step; returns its loss. What a device finds wrong; Internal, with the transfer, when tiles
  // leave out an element, or devices with the same part of a tensor give other values; when no op
  // can be done.
  absl::StatusOr<double> Step();

  // Parameters of the whole model, and gradients of its last step, put together from what devices
  // store. Internal as of Step; FailedPrecondition: gradients before a step is done.
  absl::StatusOr<Tensors> Parameters() const;
  absl::StatusOr<Tensors> Gradients() const;
  // With moments; and to go on from that of another walk, which has done so many steps.
  absl::StatusOr<Tensors> State() const;
  void SetState(const Tensors& whole, int64_t steps);

 private:
  using Bytes = std::vector<std::byte>;
  struct End {
    size_t transfer = 0;
    size_t message = 0;
  };
  struct OpEnds {
    std::vector<End> inputs, outputs;
  };
  struct Stage {
    std::vector<std::unique_ptr<GridDevice>> devices;  // by slot
  };
  struct Rank {
    size_t first_stage = 0;
    std::vector<size_t> ops;  // in their order
    size_t next = 0;
  };
  // Of a transfer, in a step.
  struct Traffic {
    std::vector<size_t> tile_bytes;           // of its source, by slot; the same in all steps
    std::vector<std::vector<Bytes>> arrived;  // by message and slot
    size_t taken = 0;
  };

  bool IsReady(size_t op) const;
  absl::Status Do(size_t op);
  absl::Status Carry(size_t transfer, std::vector<Bytes> given);
  // Parameters, or gradients.
  using Part = const Tensors& (DeviceParameters::*)() const;
  static absl::StatusOr<Matrix> PutTogether(const Stage& stage, const Parameter& parameter,
                                            Part part);
  using Parts = std::vector<Parameter> (*)(const TrainingSettings&, const StageLayers&);
  absl::StatusOr<Tensors> Whole(Parts parts, Part part) const;

  LayerProgram program_;
  std::shared_ptr<const PlannedLayers> planned_;  // null: in one go
  std::vector<OpEnds> ends_;                      // by op
  std::vector<Rank> ranks_;
  std::vector<Stage> stages_;
  std::vector<Traffic> traffic_;
};

}  // namespace crossmesh::grid_training
