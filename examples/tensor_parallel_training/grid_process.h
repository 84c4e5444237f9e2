#pragma once

#include "examples/pipeline_training/checkpoint_files.h"
#include "examples/pipeline_training/checkpoints.h"
#include "examples/tensor_parallel_training/grid_device.h"
#include "examples/tensor_parallel_training/state_memory.h"
#include "examples/tensor_parallel_training/training_phase.h"
#include "worker/pipeline/pipeline_loop.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh::grid_training {

// What a phase is on one device.
struct PhaseOfDevice {
  struct Output {
    std::string transfer;
    size_t bytes = 0;
  };
  DeviceId device;
  std::map<StageIndex, DeviceRole> roles;              // of the stages of its rank
  StateMemory memory;                                  // where its state lies between phases
  std::map<std::string, std::vector<Output>> outputs;  // by op; what it gives, whoever needs it
};
// Nothing: the phase leaves that device out. As RequestOf, and SideOf of it.
absl::StatusOr<std::optional<PhaseOfDevice>> PhaseOn(const TrainingPhase& phase,
                                                     const TrainingSettings& settings,
                                                     std::span<const DeviceId> devices,
                                                     const DeviceId& device);

// Under which it has its checkpoints: each process has a folder of its own.
inline constexpr StageIndex kCheckpointStage = 0;

// One device of a grid driven by the loops of a phase's run: tiles of messages to a GridDevice and
// back, of each stage that its rank has. Thread-compatible.
class GridProcess {
 public:
  struct Options {
    // Before an op is computed, of which step.
    std::function<void(int64_t step, const std::string& op)> on_op;
    // Hears of every step that is complete, and this device's part of its loss.
    std::function<void(int64_t step, double loss)> on_step;
    // A folder for checkpoints that only this process uses; empty: none are written. Then the run
    // ends when a process is replaced.
    std::string checkpoints;
  };
  // From InitialState. `phase` must outlive it.
  GridProcess(const PhaseOfDevice& phase, const TrainingSettings& settings, Options options);

  // From the state of the phase before, as PhaseOfDevice::memory has it, after so many steps.
  // InvalidArgument: memory of another size.
  absl::Status SetState(std::span<const std::byte> memory, int64_t steps);
  // From a checkpoint, of this grid or another one. As ReadState; then it may have some of it.
  absl::Status SetState(const training::CheckpointFiles& checkpoint);
  std::vector<std::byte> State() const;
  int64_t steps() const { return stages_.begin()->second.parameters().steps(); }

  // Until it is over; returns why, or that a checkpoint cannot be written. With an error the next
  // loop goes on where this one was. When a process of the run was replaced, all do the last
  // complete step once more: from the state before it, which all have. An op that is not one of the
  // device's fails with what GridDevice finds.
  absl::Status Run(PipelineLoop& loop);

 private:
  absl::Status WriteCheckpoint(int64_t iteration) const;
  absl::Status Complete(int64_t iteration);
  absl::Status GoBack(const PipelineStep& step);
  absl::Status Compute(const PipelineOp& op);
  // Of all stages.
  Tensors AllStored() const;
  // Of this device.
  std::vector<MessageTile> TilesOf(const std::vector<PipelineTensor>& tensors) const;

  const PhaseOfDevice& phase_;
  const Options options_;
  const std::optional<training::Checkpoints> checkpoints_;
  std::map<StageIndex, GridDevice> stages_;
  std::optional<int64_t> pending_;  // the iteration whose gradients wait to be applied, or dropped
};

}  // namespace crossmesh::grid_training
