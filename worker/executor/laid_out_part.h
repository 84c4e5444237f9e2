#pragma once

#include "common/plan/storage_layout.h"
#include "worker/executor/prepared_part.h"

#include <memory>

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A part that is ready to run and knows what memory it needs: everything of a task that is the same
// each time. Immutable; shared by the cache and the tasks that run it.
struct LaidOutPart {
  // InvalidArgument: PreparedPart::Create refuses it. Cost: that of proving it.
  static absl::StatusOr<std::shared_ptr<const LaidOutPart>> Create(
      std::shared_ptr<const WorkerPart> part);

  std::shared_ptr<const PreparedPart> prepared;
  // Where tiles lie in an arena, of the devices of this worker whose source tiles are read, and of
  // those that have destination tiles.
  absl::btree_map<DeviceRank, StorageLayout> sources;
  absl::btree_map<DeviceRank, StorageLayout> destinations;
};

}  // namespace crossmesh
