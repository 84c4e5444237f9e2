#pragma once

#include "examples/pipeline_training/training_stage.h"
#include "worker/pipeline/pipeline_loop.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh::training {

// Computes a stage for pipelines: brings tiles of its devices into matrices and back.
class StageProcess {
 public:
  // `devices`: those of the stage, in the order of its mesh. `on_step` hears the loss of every step
  // that is complete, which only the last stage knows.
  StageProcess(int stage, std::vector<DeviceId> devices, std::function<void(double)> on_step);

  // Until it is over; returns why. With an error the next loop goes on where this one was.
  absl::Status Run(PipelineLoop& loop);

 private:
  void Compute(const PipelineOp& op);
  void Forward(const PipelineOp& op);
  void InputGradient(const PipelineOp& op);
  // The tensor from a stage, or to one, on all devices. `columns`: of each shard.
  Shards Read(const PipelineTensor& tensor, int columns) const;
  void Write(const Shards& shards, const PipelineTensor& tensor) const;
  int DeviceOf(const PipelineTensor::Tile& tile) const;

  TrainingStage stage_;
  std::map<DeviceId, int> devices_;
  std::function<void(double)> on_step_;
  std::optional<int64_t> pending_;  // the iteration whose gradients wait to be applied, or dropped
};

}  // namespace crossmesh::training
