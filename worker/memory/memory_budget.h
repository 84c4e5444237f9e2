#pragma once

#include "common/base/byte_count.h"
#include "worker/memory/arena.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class MemoryCharge;

// 0.9 of MemoryLimit: some is left for the system, and for what processes have beside arenas.
ByteCount MemoryMaxByDefault();

// How much memory of the host a worker takes for what others ask of it: storages, their shadows,
// the messages of pipelines, buffers, and what it has to know of plans and programs. The system
// promises far more than there is, and ends a process when it cannot keep its word; so what is too
// much is refused here. Thread-safe; what was taken may outlive it.
class MemoryBudget {
 public:
  // `used_bytes`: taken from the start, for as long as it lives.
  explicit MemoryBudget(ByteCount bytes_max, ByteCount used_bytes = ByteCount(0));

  // Given back when the last copy goes.
  using Share = std::shared_ptr<const void>;
  // ResourceExhausted, with the name and how much is wanted, in use and allowed, here or by the
  // limit of address space.
  absl::StatusOr<Share> Take(absl::string_view name, ByteCount bytes);
  // What a share was taken for: gives it back once the value has gone.
  template <typename T>
  static std::shared_ptr<T> Bind(std::shared_ptr<T> value, Share share) {
    T* const bound = value.get();
    return std::shared_ptr<T>(
        bound, [share = std::move(share), value = std::move(value)](T* /*bound*/) mutable {
          value.reset();
          share.reset();
        });
  }
  // As Take; as Arena::Create. The arena has its charge.
  absl::StatusOr<std::shared_ptr<Arena>> MakeArena(absl::string_view name, ByteCount bytes,
                                                   Arena::Pages pages = Arena::Pages::kSmall);

  int64_t bytes_max() const { return bytes_max_; }
  int64_t used_bytes() const { return *used_bytes_; }

 private:
  absl::StatusOr<std::shared_ptr<MemoryCharge>> Charge(absl::string_view name, ByteCount bytes);

  const int64_t bytes_max_;
  // Shared with the shares, which give back what they took.
  const std::shared_ptr<std::atomic<int64_t>> used_bytes_;
};

}  // namespace crossmesh
