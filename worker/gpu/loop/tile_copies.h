#pragma once

#include "common/base/unique_fd.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/executor/task.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/loop/gpu_arenas.h"
#include "worker/gpu/protocol/tile_place.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Copies between arenas of a GPU and memory of the host that its worker shares, one request after
// the other, on a stream of their own. A copy goes through windows of the host's memory, which are
// registered only while they are in use, in batches, of which few are on the stream at once. So
// little is pinned, no call takes long, and a cancelled copy ends soon.
//
// With checksums a kernel hashes what a batch has read or written on the GPU, leaf by leaf of each
// piece, and the host what is then in its memory. Confined to the thread of the Gpu.
class TileCopies {
 public:
  static constexpr int64_t kWindowBytes = int64_t{64} << 20;  // they begin at its multiples
  static constexpr size_t kBatchPieces = 256;                 // all of one window
  static constexpr size_t kBatchesQueued = 2;

  // Called once for each copy, from inside Begin or Poll, when nothing of it goes on: DataLoss when
  // what is then in both differs.
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // All must outlive it. Errors of the driver.
  static absl::StatusOr<std::unique_ptr<TileCopies>> Create(Gpu& gpu, const GpuArenas& arenas);
  // Nothing may be under way.
  ~TileCopies() = default;

  // `file` is the host's memory. NotFound: the arena is not here. InvalidArgument: it does not have
  // the ranges, or there is no file, or the file does not have them.
  void Begin(const v1::GpuRequest::CopyTiles& request, UniqueFd file, Done done);
  // Those of the task end with `why`, as soon as nothing of them is on the stream.
  void Cancel(const TaskKey& key, const absl::Status& why);

  // Goes on with what can go on. An error when it cannot be known what is on the stream, and only
  // the process's end helps.
  absl::Status Poll();
  bool is_empty() const { return copies_.empty(); }

 private:
  // What one call of the driver copies.
  using Piece = TileRange;

  struct Window {
    int64_t begin = 0;  // in the host's memory
    std::unique_ptr<RegisteredMemory> memory;

    int64_t end() const { return begin + std::ssize(memory->bytes()); }
    std::span<std::byte> bytes(const Piece& piece) const {
      return memory->bytes().subspan(piece.offset - begin, piece.bytes);
    }
  };
  struct Copy {
    TaskKey key;
    bool is_load = false;  // to the host, and not from it
    bool checksums = false;
    ArenaId arena;
    std::vector<TileRange> ranges;
    UniqueFd file;
    std::shared_ptr<const GpuMemory> memory;
    Done done;
    absl::Status failure = absl::OkStatus();
    size_t range = 0;                                // the next to be queued
    int64_t range_queued = 0;                        // bytes of it that are
    std::shared_ptr<const Window> window = nullptr;  // of what was queued last

    bool is_queued() const { return range == ranges.size(); }
    int64_t next_offset() const { return ranges[range].offset + range_queued; }
  };
  struct Batch {
    std::unique_ptr<RegisteredMemory>
        lists;  // a box and a segment for each piece, hashes of leaves
    std::unique_ptr<GpuEvent> done;
    std::vector<Piece> pieces = {};
    std::shared_ptr<const Window> window = nullptr;
  };

  TileCopies(Gpu& gpu, const GpuArenas& arenas)
      : gpu_(gpu), arenas_(arenas), hash_(gpu.KernelNamed<PackArguments>("crossmesh_pack")) {}

  absl::StatusOr<Copy> Read(const v1::GpuRequest::CopyTiles& request, UniqueFd file) const;
  // Copies after the first that have failed, which have nothing on the stream.
  void EndThoseWaiting();
  // Of the first copy.
  absl::Status TakeDone(Copy& copy);
  // These fail for the stream alone; what else fails is the copy's.
  absl::Status QueueBatch(Copy& copy);
  absl::StatusOr<Batch> TakeBatch();
  absl::Status QueuePieces(Copy& copy, Batch& batch);
  // To where the next piece is.
  absl::Status MoveWindow(Copy& copy);
  // The next one in the window, and moves past it.
  static Piece TakePiece(Copy& copy);
  absl::Status QueueCopy(const Copy& copy, const Piece& piece);
  // Of all pieces, by one launch.
  absl::Status QueueHashes(const Copy& copy, const Batch& batch);
  static absl::Status CompareHashes(const Copy& copy, const Batch& batch);
  static std::span<uint64_t> HashesOf(const Batch& batch);

  Gpu& gpu_;
  const GpuArenas& arenas_;
  const GpuKernel<PackArguments> hash_;
  std::unique_ptr<GpuStream> stream_;
  std::deque<Copy> copies_;   // the first is under way
  std::deque<Batch> queued_;  // of the first
  std::vector<Batch> spare_;  // for their lists and events
};

}  // namespace crossmesh
