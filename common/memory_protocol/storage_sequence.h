#pragma once

#include <atomic>
#include <cstdint>

namespace crossmesh {

// What a storage's worker and the processes that have its memory tell each other without a call, in
// a page that both map. Streams of a GPU read and write such words as well (cuStreamWriteValue64,
// cuStreamWaitValue64), so that nothing has to wait for them on the host.
struct StorageSequence {
  // By the user's processes, as of a seqlock: odd while one of them writes the memory, or reads it
  // and must not be disturbed; even at rest, and another one after each use.
  alignas(64) std::atomic<uint64_t> user;
  // By the worker: the storage's generation, once all of its bytes are there; 0 when the storage is
  // no more.
  alignas(64) std::atomic<uint64_t> generation;
};

inline constexpr int64_t kSequencePageBytes = 4096;

static_assert(sizeof(StorageSequence) == 128 && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace crossmesh
