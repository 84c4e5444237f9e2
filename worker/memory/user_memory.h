#pragma once

#include "common/base/byte_count.h"
#include "common/base/unique_fd.h"
#include "worker/memory/arena.h"
#include "worker/memory/lent_allocation.h"
#include "worker/memory/storage_table.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Storages of GPU memory that user processes have: allocations that they lend by a descriptor, and
// storages that are bound to pieces of these. Thread-compatible; never blocks.
class UserMemory {
 public:
  // Makes arenas, whose memory is there later. Thread-safe.
  struct Maker {
    std::function<absl::StatusOr<std::shared_ptr<Arena>>(const StorageKey&, ByteCount,
                                                         LentAllocation)>
        lend;
    std::function<absl::StatusOr<std::shared_ptr<Arena>>(const StorageKey&, ByteCount,
                                                         std::vector<BoundPiece>)>
        bind;
    // What was lent is used no more, and lost with all that is bound to it, because of `why`.
    std::function<void(const StorageKey&, const std::shared_ptr<Arena>&, const absl::Status& why)>
        end;
  };

  // `storages` must outlive it.
  UserMemory(StorageTable& storages, Maker maker) : storages_(storages), maker_(std::move(maker)) {}

  struct Loan {
    ByteCount bytes;
    LentAllocation memory;
    uint64_t generation = 0;  // of the loan whose place it takes; 0: of none
    int lender = -1;          // its connection
  };
  // A storage that is all of an allocation. InvalidArgument unless there is one of descriptor and
  // handle; as StorageTable::Bind; what the maker says. Whether it is one of so much memory is
  // known when the memory is there. A loan by a handle ends when another one takes its place: the
  // allocation of that handle may be no more.
  absl::StatusOr<StorageTable::Opened> Lend(const StorageKey& key, Loan loan);
  // The lender's connection is over, most likely since its process is, and with it the memory that
  // it has lent by handles. What has a descriptor stays.
  void EndLoansOf(int lender);

  struct Binding {
    ByteCount bytes;  // of the storage
    uint64_t generation = 0;
    UniqueFd list;  // a sealed file with a PieceList
  };
  // InvalidArgument, naming the piece, when the list is not good; FailedPrecondition when something
  // in it is no allocation that was lent, and Aborted when it was lent anew since the generation
  // that the list says; as StorageTable::Bind; NotFound; what the maker says.
  // Cost: linear in the list, and that of sorting it.
  absl::StatusOr<StorageTable::Opened> Bind(const StorageKey& key, const Binding& binding);

 private:
  absl::StatusOr<StorageTable::Opened> FindAllocation(const StorageKey& key) const;
  void EndLoan(const StorageKey& key, const std::shared_ptr<Arena>& arena,
               absl::string_view why) const;

  StorageTable& storages_;
  const Maker maker_;
  struct LentByHandle {
    StorageKey key;
    std::weak_ptr<Arena> arena;  // may have been deleted since
  };
  std::multimap<int, LentByHandle> loans_;  // by lender
};

}  // namespace crossmesh
