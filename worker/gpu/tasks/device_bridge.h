#pragma once

#include "common/base/byte_count.h"
#include "common/plan/packed_segments.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/executor/task.h"
#include "worker/gpu/devices/gpu_device.h"
#include "worker/gpu/devices/storage_arenas.h"
#include "worker/gpu/protocol/tile_place.h"
#include "worker/memory/arena.h"
#include "worker/memory/device_memory.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// A GPU of one task that takes part through memory of the host: bounce buffers of the arenas that
// its tiles lie in, each byte at the same offset. Loads source tiles into them, and stores
// destination tiles from them. Confined to the loop; destroyed when nothing is under way.
//
//   bounce buffers --Load: the memory is made, source tiles are copied--> LOADED --Store--> STORED
//   any of them, when nothing is under way --Release--> RELEASED
class DeviceBridge {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  using MakeBounceBuffer = absl::FunctionRef<absl::StatusOr<std::shared_ptr<Arena>>(ByteCount)>;

  struct Options {
    TaskKey key;
    DeviceRank device = 0;  // of the plan
    bool checksums = true;
    // A destination tile that is a source tile gets other bytes, as by sums.
    bool overwrites_sources = false;
    absl::Duration deadline;  // of the task
  };

  // `gpu` must outlive it.
  DeviceBridge(GpuDevice& gpu, const Options& options) : gpu_(gpu), options_(options) {}
  DeviceBridge(const DeviceBridge&) = delete;
  DeviceBridge& operator=(const DeviceBridge&) = delete;

  DeviceRank device() const { return options_.device; }
  std::string name() const { return gpu_.name(); }

  // Before Load, sources first: where the tiles of a side, which `map` describes, are in bounce
  // buffers. A destination that is a source as well keeps its bytes, unless sources are
  // overwritten, and is not stored.
  // FailedPrecondition when a tile is in lent memory; what `make_bounce_buffer` says.
  absl::StatusOr<BoundTiles> BounceBufferTiles(Side side, const BoundTiles& tiles,
                                               const TileMap& map,
                                               MakeBounceBuffer make_bounce_buffer);

  // Each once, one after the other. `done` is called once, maybe from inside, when nothing of it
  // goes on: DataLoss when bytes have changed on their way, Unavailable when the process is lost.
  void Load(Done done);
  void Store(Done done);
  // What is not complete ends with `why`, soon.
  void Cancel(const absl::Status& why);
  // Last of all: the process gives back what it has of the bounce buffers, which live until then.
  void Release();

 private:
  using Direction = v1::GpuRequest::CopyTiles::Direction;

  struct BounceBuffer {
    const std::byte* first = nullptr;  // of the arena that stands for the GPU's memory
    std::shared_ptr<DeviceMemory> memory;
    std::shared_ptr<Arena> arena;  // of the host
    std::vector<TileRange> loaded = {};
    std::vector<TileRange> stored = {};
  };

  // Of one tile, which is in the bounce buffer that comes back.
  absl::StatusOr<BounceBuffer*> BounceBufferOf(const StorageArenas::Found& found,
                                               MakeBounceBuffer make_bounce_buffer);
  void AwaitMemory();
  void CopyAll(Direction direction);
  absl::Status Copy(const BounceBuffer& bounce_buffer, Direction direction,
                    const std::vector<TileRange>& ranges);
  void CloseOne(const absl::Status& status);

  GpuDevice& gpu_;
  const Options options_;
  std::vector<BounceBuffer> bounce_buffers_;
  BoundTiles sources_;  // in the GPU's arenas
  absl::Status cancelled_;
  Done done_;                // null: nothing is under way
  int32_t open_ = 0;         // copies
  bool has_copied_ = false;  // so that the process may have bounce buffers
  absl::Status status_;
};

}  // namespace crossmesh
