#pragma once

#include "client/cli/storage_tiles.h"
#include "client/cli/tensor_values.h"
#include "client/memory/memory_client.h"
#include "common/mesh/manifest.h"
#include "common/plan/tensor_table.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/reshard.pb.h"
#include "tests/live/live_cluster.h"

#include <memory>
#include <string>
#include <vector>

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
  static absl::StatusOr<std::unique_ptr<ClusterCase>> Create(Options options);

  // Moves everything once, in place, and waits until it has committed.
  absl::StatusOr<v1::Operation> Move();
  // DataLoss for the first element of a destination that is not as it should be.
  absl::Status Check() const;

 private:
  // A device's part of one side, with its memory.
  struct Holding {
    StorageTiles tiles;
    MappedStorage storage;
  };

  explicit ClusterCase(Options options)
      : options_(std::move(options)), values_(options_.manifest) {}
  absl::Status Start();
  absl::Status MakeRequest();
  absl::StatusOr<Holding> Open(const std::string& worker, Side side, const std::string& storage);

  const Options options_;
  const GeneratedValues values_;
  v1::ReshardSpec spec_;
  std::unique_ptr<const TensorTable> tensors_;
  std::unique_ptr<LiveCluster> cluster_;
  std::vector<Holding> sources_;
  std::vector<Holding> destinations_;
};

}  // namespace crossmesh
