#pragma once

#include "common/base/byte_count.h"
#include "common/base/unique_fd.h"
#include "worker/memory/arena.h"
#include "worker/memory/storage_table.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Storages of GPU memory that user processes have: allocations that they lend by a descriptor, and
// storages that are bound to pieces of these. Thread-compatible; never blocks.
class UserMemory {
 public:
  // Makes arenas, whose memory is there later. Thread-safe.
  struct Maker {
    std::function<absl::StatusOr<std::shared_ptr<Arena>>(const StorageKey&, ByteCount, UniqueFd)>
        lend;
    std::function<absl::StatusOr<std::shared_ptr<Arena>>(const StorageKey&, ByteCount,
                                                         std::vector<BoundPiece>)>
        bind;
  };

  // `storages` must outlive it.
  UserMemory(StorageTable& storages, Maker maker) : storages_(storages), maker_(std::move(maker)) {}

  // A storage that is all of an allocation. AlreadyExists when the name is taken; InvalidArgument
  // without a descriptor; what the maker says. Whether the descriptor is one of so much memory is
  // known when the memory is there.
  absl::StatusOr<StorageTable::Opened> Lend(const StorageKey& key, ByteCount bytes,
                                            UniqueFd allocation);

  struct Binding {
    ByteCount bytes;  // of the storage
    uint64_t generation = 0;
    UniqueFd list;  // a sealed file with a PieceList
  };
  // InvalidArgument, naming the piece, when the list is not good; FailedPrecondition when something
  // in it is no allocation that was lent, and as StorageTable::Bind; NotFound; what the maker says.
  // Cost: linear in the list, and that of sorting it.
  absl::StatusOr<StorageTable::Opened> Bind(const StorageKey& key, const Binding& binding);

 private:
  absl::StatusOr<std::shared_ptr<Arena>> FindAllocation(const StorageKey& key) const;

  StorageTable& storages_;
  const Maker maker_;
};

}  // namespace crossmesh
