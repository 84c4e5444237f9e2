#pragma once

#include "common/base/unique_fd.h"
#include "common/event_loop/event_loop.h"
#include "common/event_loop/timer_id.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/executor/task.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/device/host_threads.h"
#include "worker/gpu/device/look_pace.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/loop/bounce_buffer.h"
#include "worker/gpu/loop/gpu_arenas.h"
#include "worker/gpu/protocol/tile_place.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// Copies between arenas of a GPU and bounce buffers, memory of the host that its worker shares, one
// request after the other, on a stream of their own. A copy goes through windows of the bounce
// buffer in batches, some of which are under way at once: a window is being registered, a batch is
// copied, and hashed on the GPU, and the host hashes another one. No call of the loop's thread
// takes long, and a cancelled copy ends soon.
//
// A window stays registered until the task's bounce buffers are released. With checksums a kernel
// hashes what a batch has read or written on the GPU, leaf by leaf of each piece, and the host what
// is then in its memory. Confined to the loop of the Gpu.
class TileCopies {
 public:
  static constexpr size_t kBatchPieces = 256;  // all of one window
  static constexpr size_t kBatchesMax = 8;     // under way at once
  static constexpr int kHostThreads = 4;       // that register and hash
  // Between two looks at the GPU. At the longest it has not yet done what is under way: 256 MiB at
  // 64 GB/s.
  static constexpr absl::Duration kLookMin = absl::Microseconds(20);
  static constexpr absl::Duration kLookMax = absl::Milliseconds(4);

  // All must outlive it.
  struct Ports {
    EventLoop& loop;
    Gpu& gpu;
    const GpuArenas& arenas;
  };

  // Called once for each request, from inside or from the loop.
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // Errors of the driver; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<TileCopies>> Create(const Ports& ports);
  // Nothing may be under way.
  ~TileCopies() = default;

  // `descriptor` is of the bounce buffer that the task has for the arena. `done` is called when
  // nothing of the copy goes on: DataLoss when what is then in both differs. NotFound: the arena is
  // not here. InvalidArgument: it does not have the ranges, or the bounce buffer has not, which
  // must be the same until it is released.
  void Begin(const v1::GpuRequest::CopyTiles& request, UniqueFd descriptor, Done done);
  // Copies of the task end with `why`, as soon as nothing of them goes on.
  void Cancel(const TaskKey& key, const absl::Status& why);
  // Gives the bounce buffers of the task back; `done` is called when nothing is left of them.
  // FailedPrecondition while something of it is being copied.
  void Release(const TaskKey& key, Done done);

  // OK, or why it cannot be known what is on the stream, so that only the process's end helps.
  const absl::Status& health() const { return health_; }
  bool is_copying() const { return !copies_.empty(); }
  bool is_empty() const { return !is_copying() && releases_ == 0; }

 private:
  // What one call of the driver copies.
  using Piece = TileRange;
  // Of a task, for an arena.
  using BounceBufferKey = std::pair<TaskKey, ArenaId>;

  struct Copy {
    TaskKey key;
    bool is_load = false;  // to the host, and not from it
    bool checksums = false;
    ArenaId arena;
    std::vector<TileRange> ranges;
    std::shared_ptr<const GpuMemory> memory;
    Done done = nullptr;
    BounceBuffer* bounce_buffer = nullptr;
    absl::Status failure = absl::OkStatus();
    size_t range = 0;         // the next to be taken
    int64_t range_taken = 0;  // bytes of it that are

    bool is_taken() const { return range == ranges.size(); }
    int64_t next_offset() const { return ranges[range].offset + range_taken; }
  };
  //   REGISTERING --its window is--> ON_STREAM --it is done--> HASHING --> OVER
  //   After a failure, and without checksums, what comes next is OVER.
  struct Batch {
    enum class State : uint8_t { kRegistering, kOnStream, kHashing, kOver };

    std::unique_ptr<RegisteredMemory>
        lists;  // a box and a segment for each piece, hashes of leaves
    std::unique_ptr<GpuEvent> done;
    State state = State::kOver;
    std::vector<Piece> pieces = {};
    const BounceBuffer::Window* window = nullptr;
  };

  explicit TileCopies(const Ports& ports)
      : ports_(ports), hash_(ports.gpu.KernelNamed<PackArguments>("crossmesh_pack")) {}

  // What is asked for, without its bounce buffer.
  absl::StatusOr<Copy> Read(const v1::GpuRequest::CopyTiles& request) const;
  absl::Status OpenBounceBuffer(Copy& copy, UniqueFd descriptor);

  // Soon, and from the loop.
  void RequestLook();
  // Says how soon the next one is to be, which looks for other reasons do not.
  void LookInTime();
  // Does what can be done, and comes again when something else may be.
  void GoOn();

  // These fail for the stream alone; what else fails is the copy's.
  absl::Status TakeDone();
  absl::Status Advance();
  absl::Status QueueRegistered(Copy& copy);
  absl::Status QueueBatch(Copy& copy, Batch& batch);

  // Copies after the first that have failed.
  void EndThoseWaiting();
  void DropThoseOver();
  void BeginBatches(Copy& copy);
  absl::StatusOr<std::unique_ptr<Batch>> TakeBatch();
  void TakePieces(Copy& copy, Batch& batch);
  absl::Status QueuePieces(const Copy& copy, const Batch& batch);
  // Of all pieces, by one launch.
  absl::Status QueueHashes(const Copy& copy, const Batch& batch);
  void Hash(Batch& batch);

  const Ports ports_;
  const GpuKernel<PackArguments> hash_;
  std::unique_ptr<GpuStream> stream_;
  std::unique_ptr<HostThreads> threads_;
  std::map<BounceBufferKey, BounceBuffer> bounce_buffers_;
  std::deque<Copy> copies_;                      // the first is under way
  std::vector<std::unique_ptr<Batch>> batches_;  // of the first
  std::deque<Batch*> on_stream_;                 // of these
  std::vector<std::unique_ptr<Batch>> spare_;    // for their lists and events
  int64_t releases_ = 0;                         // under way
  bool is_look_requested_ = false;
  TimerId next_look_;
  LookPace pace_{kLookMin, kLookMax};
  absl::Status health_;
};

}  // namespace crossmesh
