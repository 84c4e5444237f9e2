#include "worker/memory/reused_arenas.h"

#include "common/base/mutex.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <ranges>
#include <utility>
#include <vector>

namespace crossmesh {

// Those that nobody uses.
class ReusedArenas::Idle {
 public:
  explicit Idle(int64_t bytes_max) : bytes_max_(bytes_max) {}

  // Null: there is none.
  std::shared_ptr<Arena> Take(int64_t bytes) {
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find(arenas_ | std::views::reverse, bytes, &BytesOf);
    if (found == arenas_.rend()) return nullptr;
    std::shared_ptr<Arena> arena = std::move(*found);
    arenas_.erase(std::next(found).base());
    bytes_ -= bytes;
    return arena;
  }

  void Return(std::shared_ptr<Arena> arena) {
    if (BytesOf(arena) > bytes_max_) return;
    std::vector<std::shared_ptr<Arena>> dropped;  // outside the lock
    const MutexLock lock(mutex_);
    bytes_ += BytesOf(arena);
    arenas_.push_back(std::move(arena));
    auto first = arenas_.begin();
    for (; bytes_ > bytes_max_; ++first) {
      bytes_ -= BytesOf(*first);
      dropped.push_back(std::move(*first));
    }
    arenas_.erase(arenas_.begin(), first);
  }

 private:
  static int64_t BytesOf(const std::shared_ptr<Arena>& arena) { return std::ssize(arena->bytes()); }

  const int64_t bytes_max_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Arena>> arenas_ ABSL_GUARDED_BY(mutex_);  // used longest ago first
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

ReusedArenas::ReusedArenas(ByteCount bytes_max)
    : idle_(std::make_shared<Idle>(bytes_max.value())) {}

absl::StatusOr<std::shared_ptr<Arena>> ReusedArenas::Take(ByteCount bytes, Make make) {
  std::shared_ptr<Arena> arena = idle_->Take(bytes.value());
  if (arena == nullptr) {
    ASSIGN_OR_RETURN(arena, make());
  }
  Arena* const used = arena.get();
  return std::shared_ptr<Arena>(used,
                                [idle = idle_, arena = std::move(arena)](Arena* /*used*/) mutable {
                                  idle->Return(std::move(arena));
                                });
}

}  // namespace crossmesh
