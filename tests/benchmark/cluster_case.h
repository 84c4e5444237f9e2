#pragma once

#include "client/memory/memory_client.h"
#include "common/mesh/manifest.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"

#include <cstddef>
#include <memory>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A controller and four workers, and a reshard of all tensors of a manifest between them: from four
// slots, cut on dimension 0, to two replicas of two slots, matrices cut on dimension 1. Sources are
// filled with values that tell where they belong. Thread-compatible.
class ClusterCase {
 public:
  struct Options {
    Manifest manifest;
    bool shared_memory = true;  // else all bytes go over TCP
    bool checksums = true;
  };

  // Starts the daemons of this build.
  static absl::StatusOr<std::unique_ptr<ClusterCase>> Create(const Options& options);

  // Moves everything once, in place, and waits until it has committed.
  absl::StatusOr<v1::Operation> Move();
  // Copies all sources into their storages from memory of this process, and destinations from
  // theirs: a thread for each worker, as a training has a process for each, and a piece for each
  // tensor.
  absl::Status Fill();
  absl::Status Read();
  // DataLoss for the first element of a destination that is not as it should be.
  absl::Status Check() const { return reshard_->CheckAll(1); }

 private:
  using Pieces = std::vector<std::vector<std::byte>>;

  // Of a worker: its storages, and what is copied into the one and from the other.
  struct Copies {
    MappedStorage source;
    MappedStorage destination;
    Pieces filled;
    Pieces read;
  };

  // Maps the storages when they are first copied.
  absl::Status OpenCopies();
  void OfEachWorker(absl::FunctionRef<void(Copies& copies)> copy);

  std::unique_ptr<LiveCluster> cluster_;
  std::unique_ptr<ReshardCase> reshard_;
  std::vector<Copies> copies_;
};

}  // namespace crossmesh
