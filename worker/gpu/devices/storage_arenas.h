#pragma once

#include "common/base/byte_count.h"
#include "common/base/mutex.h"
#include "common/event_loop/event_loop.h"
#include "worker/gpu/process/gpu_process.h"
#include "worker/gpu/protocol/tile_place.h"
#include "worker/memory/arena.h"
#include "worker/memory/device_memory.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct LentAllocation;

// The memory of one GPU's storages. The GPU's process makes the arenas; a reserved range of
// addresses in this process stands for each of them from the first moment, and tells where tiles
// lie. An arena is released with the last reference to its range.
//
// Memory that user processes lend is taken in by a descriptor, and lives as long as the range that
// stands for it; or by an IPC handle, and is lost when the loan ends. A range may also be bound:
// its pieces stand for pieces of such memory.
//
// Confined to the loop but for Make, Lend, Bind, EndLoan, construction and destruction; destroyed
// when the loop has stopped. Arenas may outlive it.
class StorageArenas {
 public:
  // `loop`, which drives `process`, and `process` must outlive it. `gpu`: its UUID.
  StorageArenas(EventLoop& loop, std::string gpu, GpuProcess& process);
  ~StorageArenas();
  StorageArenas(const StorageArenas&) = delete;
  StorageArenas& operator=(const StorageArenas&) = delete;

  // OK: memory can be made from now on. Otherwise why not; known to Make at once.
  void SetAvailable(const absl::Status& status);

  // The memory is gone from the GPU; logged.
  void MarkLost(ArenaId arena, const absl::Status& why);

  // The process has stopped: what waits for memory is told so. Repeatable.
  void Close();

  // Thread-safe, never blocks. Zeros, later: DeviceMemory says when. Unavailable with the cause
  // when the GPU is not up, ResourceExhausted without address space.
  absl::StatusOr<std::shared_ptr<Arena>> Make(absl::string_view name, ByteCount bytes);
  // The same of memory that a user process lends; DeviceMemory says InvalidArgument when it is not
  // so much memory of the GPU.
  absl::StatusOr<std::shared_ptr<Arena>> Lend(absl::string_view name, ByteCount bytes,
                                              LentAllocation allocation);
  // The same of `pieces` of what was lent here, which CheckPieces has found good.
  absl::StatusOr<std::shared_ptr<Arena>> Bind(absl::string_view name, ByteCount bytes,
                                              std::vector<BoundPiece> pieces);

  // Thread-safe, never blocks. Memory that was lent is used no more: as MarkLost, later.
  void EndLoan(std::shared_ptr<Arena> lent, const absl::Status& why);

  struct Found {
    std::shared_ptr<DeviceMemory> memory;
    TilePlace place;                   // once the memory is made
    const std::byte* first = nullptr;  // of the range that stands for the arena
    ByteCount bytes;                   // of the arena
    ByteCount left;                    // of the arena, or of the piece, from the place on
  };
  // FailedPrecondition when the address is none of these ranges, or of no piece of a bound one.
  absl::StatusOr<Found> Find(const std::byte* address) const;
  // FailedPrecondition when a tile of so many bytes would not lie in one piece.
  static absl::Status CheckHolds(const Found& found, ByteCount tile);

 private:
  struct Entry {
    std::string storage;  // its name
    std::shared_ptr<DeviceMemory> memory;
    ByteCount bytes;
    std::vector<BoundPiece> pieces = {};  // of one that is bound; ascending
    ArenaId arena = ArenaId();            // 0: not made yet, lost, or bound
  };
  using Begin = absl::AnyInvocable<void(const std::byte* first, Entry entry)>;
  // Shared with the arenas, which may go on any thread.
  struct Shared {
    Mutex mutex;
    StorageArenas* owner ABSL_GUARDED_BY(mutex) = nullptr;  // null: gone
    absl::Status available ABSL_GUARDED_BY(mutex);
  };

  absl::Status Stopping() const;
  void Lose(Entry& entry, const absl::Status& why);
  // The range that stands for the entry's memory, which `begin` makes, on the loop.
  absl::StatusOr<std::shared_ptr<Arena>> Reserve(Entry entry, Begin begin);
  void MakeOnLoop(const std::byte* first, Entry entry);
  void LendOnLoop(const std::byte* first, Entry entry, LentAllocation allocation);
  void BindOnLoop(const std::byte* first, Entry entry);
  absl::StatusOr<Found> FindInPieces(const Entry& entry, int64_t offset) const;
  void OnMade(const std::byte* first, DeviceMemory& memory, absl::StatusOr<ArenaId> made);
  void Release(const std::byte* first);
  static void PostRelease(Shared& shared, std::shared_ptr<Arena> arena);

  EventLoop& loop_;
  const std::string gpu_;
  GpuProcess& process_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::map<const std::byte*, Entry> arenas_;  // by their first address
};

}  // namespace crossmesh
