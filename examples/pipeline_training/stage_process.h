#pragma once

#include "examples/pipeline_training/training_stage.h"
#include "worker/pipeline/pipeline_loop.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh::training {

// Computes a stage for pipelines: brings tiles of its devices into matrices and back.
class StageProcess {
 public:
  // `devices`: those of the stage, in the order of its mesh. `on_step` hears the loss of every step
  // that is complete, which only the last stage knows.
  StageProcess(int stage, std::vector<DeviceId> devices, std::function<void(double)> on_step);

  // Until it is over; returns why. With an error the next loop goes on where this one was. An op
  // that is not one of the model fails with InvalidArgument, which names it: another stage or
  // microbatch, a tensor that is missing, of another type, or with tiles of another size.
  absl::Status Run(PipelineLoop& loop);

 private:
  absl::Status Compute(const PipelineOp& op);
  absl::Status Forward(const PipelineOp& op);
  absl::Status InputGradient(const PipelineOp& op);
  // The tensor from a stage, or to one, on all devices. `columns`: of each shard.
  absl::StatusOr<Shards> Read(const PipelineOp& op, const PipelineTensor& tensor,
                              int columns) const;
  absl::Status Write(const PipelineOp& op, const Shards& shards,
                     const PipelineTensor& tensor) const;
  // Does every tile have the bytes of its device's shard?
  absl::Status CheckTiles(const Op& op, const PipelineTensor& tensor, const Shards& shards) const;

  const int number_;
  TrainingStage stage_;
  std::map<DeviceId, int> devices_;
  std::function<void(double)> on_step_;
  std::optional<int64_t> pending_;  // the iteration whose gradients wait to be applied, or dropped
};

}  // namespace crossmesh::training
