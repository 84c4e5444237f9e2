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

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The memory of one GPU's storages. The GPU's process makes the arenas; a reserved range of
// addresses in this process stands for each of them from the first moment, and tells where tiles
// lie. An arena is released with the last reference to its range.
//
// Confined to the loop but for Make, construction and destruction; destroyed when the loop has
// stopped. Arenas may outlive it.
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

  struct Found {
    std::shared_ptr<DeviceMemory> memory;
    TilePlace place;  // once the memory is made
    ByteCount bytes;  // of the arena
  };
  // FailedPrecondition when the address is of lent memory, not of the GPU's own.
  absl::StatusOr<Found> Find(const std::byte* address) const;

 private:
  struct Entry {
    std::string storage;  // its name
    std::shared_ptr<DeviceMemory> memory;
    ByteCount bytes;
    ArenaId arena = ArenaId();  // 0: not made yet, or lost
  };
  // Shared with the arenas, which may go on any thread.
  struct Shared {
    Mutex mutex;
    StorageArenas* owner ABSL_GUARDED_BY(mutex) = nullptr;  // null: gone
    absl::Status available ABSL_GUARDED_BY(mutex);
  };

  absl::Status Stopping() const;
  void MakeOnLoop(const std::byte* first, Entry entry);
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
