#include "worker/memory/memory_budget.h"

#include "common/base/memory_limit.h"

#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

ByteCount MemoryMaxByDefault() { return ByteCount(MemoryLimit() / 10 * 9); }

MemoryBudget::MemoryBudget(ByteCount bytes_max, ByteCount used_bytes)
    : bytes_max_(bytes_max.value()),
      used_bytes_(std::make_shared<std::atomic<int64_t>>(used_bytes.value())) {}

absl::StatusOr<std::shared_ptr<Arena>> MemoryBudget::MakeArena(absl::string_view name,
                                                               ByteCount bytes,
                                                               Arena::Pages pages) {
  const int64_t wanted = bytes.value();
  int64_t used = *used_bytes_;
  do {
    if (wanted > bytes_max_ - used) {
      return absl::ResourceExhaustedError(
          absl::StrCat(name, ": expected at most ", bytes_max_,
                       " bytes of host memory for all storages, shadows and buffers of this worker "
                       "(--memory-max), found ",
                       used, " in use and ", wanted, " wanted"));
    }
  } while (!used_bytes_->compare_exchange_weak(used, used + wanted));
  absl::StatusOr<std::shared_ptr<Arena>> arena = Arena::Create(name, bytes, pages);
  if (!arena.ok()) {
    *used_bytes_ -= wanted;
    return arena.status();
  }
  Arena* const made = arena->get();
  return std::shared_ptr<Arena>(
      made, [wanted, used_bytes = used_bytes_, arena = *std::move(arena)](Arena* /*made*/) mutable {
        arena.reset();
        *used_bytes -= wanted;
      });
}

}  // namespace crossmesh
