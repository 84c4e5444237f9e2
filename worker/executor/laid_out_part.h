#pragma once

#include "common/plan/storage_layout.h"
#include "worker/executor/prepared_part.h"

#include <cstdint>
#include <memory>

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class MemoryBudget;

// A part that is ready to run and knows what memory it needs: everything of a task that is the same
// each time. Immutable; shared by the cache and the tasks that run it.
struct LaidOutPart {
  struct Admission {
    absl::string_view name;  // of the part, for messages
    MemoryBudget& memory;
    int32_t runs = 1;  // at a time
  };

  // InvalidArgument: PreparedPart::Create refuses it. Cost: that of proving it.
  static absl::StatusOr<std::shared_ptr<const LaidOutPart>> Create(
      std::shared_ptr<const WorkerPart> part);
  // The same; the part takes of the memory for as long as it lives. ResourceExhausted: there is too
  // little for it and its runs, with the figures, before it is spent.
  static absl::StatusOr<std::shared_ptr<const LaidOutPart>> Admit(
      std::shared_ptr<const WorkerPart> part, const Admission& admission);

  std::shared_ptr<const PreparedPart> prepared;
  // Where tiles lie in an arena, of the devices of this worker whose source tiles are read, and of
  // those that have destination tiles.
  absl::btree_map<DeviceRank, StorageLayout> sources;
  absl::btree_map<DeviceRank, StorageLayout> destinations;
};

}  // namespace crossmesh
