#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The highest controller epoch that this worker has obeyed. A controller of a lower one has been
// replaced, even if it does not know, and is obeyed no more. With a path the epoch outlives the
// process. Thread-compatible.
class EpochFence {
 public:
  // Remembers in memory only.
  EpochFence() = default;

  // Reads the file, which need not exist. DataLoss, naming it, when it holds anything else than an
  // epoch; Unavailable when it cannot be read.
  static absl::StatusOr<EpochFence> Open(std::string path);

  // FailedPrecondition, naming both epochs, when `epoch` is lower than the highest.
  absl::Status Check(uint64_t epoch) const;

  // Check, and from now on nothing lower passes. A higher epoch is on disk before this returns.
  // The system's error, and nothing lower is refused yet, when it cannot be written for certain.
  absl::Status Raise(uint64_t epoch);

  uint64_t highest() const { return highest_; }

 private:
  absl::Status Write(uint64_t epoch) const;

  std::string path_;  // empty: no file
  uint64_t highest_ = 0;
};

}  // namespace crossmesh
