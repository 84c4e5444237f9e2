#pragma once

#include "examples/pipeline_training/checkpoints.h"
#include "examples/pipeline_training/training_stage.h"
#include "worker/pipeline/pipeline_loop.h"

#include <cstdint>
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
  struct Options {
    // Hears the loss of every step that is complete, which only the last stage knows.
    std::function<void(int step, double loss)> on_step;
    // The folder of the run's checkpoints; empty: none are written. Then the run ends when a
    // process is replaced, unless no iteration was complete.
    std::string checkpoints;
  };
  // `devices`: those of the stage, in the order of its mesh.
  StageProcess(int stage, std::vector<DeviceId> devices, Options options);

  // Until it is over; returns why, or that a checkpoint cannot be written. With an error the next
  // loop goes on where this one was. When a process of the run was replaced, all go back to the
  // checkpoint that the lost ones had, and count on from its step. An op that is not one of the
  // model fails with InvalidArgument, which names it: another stage or microbatch, a tensor that is
  // missing, of another type, or with tiles of another size.
  absl::Status Run(PipelineLoop& loop);

 private:
  absl::Status Complete(int64_t iteration);
  absl::Status GoBack(const PipelineStep& step);
  absl::Status Compute(const PipelineStep& step);
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
  const std::function<void(int, double)> on_step_;
  const std::optional<Checkpoints> checkpoints_;
  int32_t step_ = 0;                // the next one to be complete
  std::optional<int64_t> pending_;  // the iteration whose gradients wait to be applied, or dropped
};

}  // namespace crossmesh::training
