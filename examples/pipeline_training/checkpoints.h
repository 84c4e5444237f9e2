#pragma once

#include "planner/pipeline/op.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh::training {

// The checkpoints of a run, in a folder that the processes of all its stages share, and that is
// empty when the run begins: a file for each stage and iteration. Thread-compatible.
class Checkpoints {
 public:
  explicit Checkpoints(std::string folder) : folder_(std::move(folder)) {}

  // Of a complete iteration. Keeps the one before, and removes what is older: a process that is
  // killed may have no checkpoint of the last iteration yet, and then all have to go back to the
  // one before. Internal names the file.
  absl::Status Write(StageIndex stage, int64_t iteration, absl::string_view bytes) const;
  // The newest iteration of which all these stages have one; -1: there is none.
  int64_t NewestOf(const std::vector<StageIndex>& stages) const;
  // The newest one before an iteration; -1: there is none.
  int64_t NewestBefore(StageIndex stage, int64_t iteration) const;
  // NotFound names the file.
  absl::StatusOr<std::string> Read(StageIndex stage, int64_t iteration) const;
  // Removes those of later iterations.
  void GoBackTo(StageIndex stage, int64_t iteration) const;

 private:
  std::string PathOf(StageIndex stage, int64_t iteration) const;
  // Ascending.
  std::vector<int64_t> IterationsOf(StageIndex stage) const;

  const std::string folder_;
};

}  // namespace crossmesh::training
