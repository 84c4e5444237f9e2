#pragma once

#include "examples/pipeline_training/checkpoint_files.h"
#include "planner/pipeline/op.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh::training {

// The checkpoints of a run, in a folder that the processes of all its stages share, and that is
// empty when the run begins: a file for each stage and iteration, as WriteCheckpoint writes them.
// Thread-compatible.
class Checkpoints {
 public:
  explicit Checkpoints(std::string folder) : folder_(std::move(folder)) {}

  // The newest iteration that is there of `stage` in each of some processes' own folders, all that
  // `folder` has. NotFound: there is none; as CheckpointFiles::Open.
  static absl::StatusOr<CheckpointFiles> OpenNewest(const std::string& folder, StageIndex stage);

  // Of a complete iteration. Keeps the one before, and removes what is older: a process that is
  // killed may have no checkpoint of the last iteration yet, and then all have to go back to the
  // one before. As WriteCheckpoint.
  absl::Status Write(StageIndex stage, int64_t iteration, int64_t steps,
                     std::span<const CheckpointBox> boxes) const;
  // The newest iteration of which all these stages have one; -1: there is none.
  int64_t NewestOf(const std::vector<StageIndex>& stages) const;
  // The newest one before an iteration; -1: there is none.
  int64_t NewestBefore(StageIndex stage, int64_t iteration) const;
  // As CheckpointFiles::Open.
  absl::StatusOr<CheckpointFiles> Open(StageIndex stage, int64_t iteration) const;
  // Removes those of later iterations.
  void GoBackTo(StageIndex stage, int64_t iteration) const;

 private:
  std::string PathOf(StageIndex stage, int64_t iteration) const;
  // Ascending.
  std::vector<int64_t> IterationsOf(StageIndex stage) const;

  const std::string folder_;
};

}  // namespace crossmesh::training
