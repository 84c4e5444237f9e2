#pragma once

#include "common/base/byte_count.h"
#include "worker/memory/arena.h"

#include <atomic>
#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// 0.9 of MemoryLimit: some is left for the system, and for what processes have beside arenas.
ByteCount MemoryMaxByDefault();

// How much memory of the host the arenas of a worker take together: storages, their shadows, the
// messages of pipelines, and buffers. The system promises far more than there is, and ends a
// process when it cannot keep its word; so what is too much is refused here. Thread-safe; arenas
// may outlive it.
class MemoryBudget {
 public:
  // `used_bytes`: taken from the start, for as long as it lives.
  explicit MemoryBudget(ByteCount bytes_max, ByteCount used_bytes = ByteCount(0));

  // ResourceExhausted, with the name and how much is wanted, in use and allowed; as Arena::Create.
  absl::StatusOr<std::shared_ptr<Arena>> MakeArena(absl::string_view name, ByteCount bytes,
                                                   Arena::Pages pages = Arena::Pages::kSmall);

  int64_t bytes_max() const { return bytes_max_; }
  int64_t used_bytes() const { return *used_bytes_; }

 private:
  const int64_t bytes_max_;
  // Shared with the arenas, which give back what they took.
  const std::shared_ptr<std::atomic<int64_t>> used_bytes_;
};

}  // namespace crossmesh
