#include "controller/store/sqlite/store_space.h"

#include "common/base/free_space.h"
#include "common/base/log.h"
#include "controller/store/store_error.h"

#include <limits>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// A row is written to the log, and from there to the database, page by page.
int64_t WrittenBytes(int64_t bytes) { return 3 * bytes + (int64_t{1} << 20); }

}  // namespace

int64_t StoreSpace::free_bytes() const {
  const std::optional<int64_t> found =
      options_.free_bytes ? options_.free_bytes() : FreeBytesAt(folder_.path());
  return found.value_or(std::numeric_limits<int64_t>::max());
}

absl::Status StoreSpace::Check(Kind kind, int64_t bytes) const {
  const bool may_use_reserve = kind == Kind::kDelete && is_released_;
  const int64_t needed = WrittenBytes(bytes) + (may_use_reserve ? 0 : options_.free_bytes_min);
  const int64_t free = free_bytes();
  if (free >= needed) return absl::OkStatus();
  return StoreError(StoreErrorKind::kFull,
                    absl::StrCat("store ", folder_.path(), " is full (STORE_FULL): expected ",
                                 needed, " bytes free, found ", free));
}

absl::Status StoreSpace::ReleaseReserve() {
  is_released_ = true;
  LogWarning("store_reserve_released", {{"folder", folder_.path()}});
  return folder_.RemoveReserve();
}

void StoreSpace::RestoreReserve() {
  if (options_.reserve_bytes == 0 || folder_.has_reserve()) return;
  if (free_bytes() < options_.free_bytes_min + 2 * options_.reserve_bytes) return;
  if (const absl::Status made = folder_.MakeReserve(options_.reserve_bytes); !made.ok()) {
    LogWarning("store_reserve_missing", {{"status", made.ToString()}});
    return;
  }
  is_released_ = false;
}

}  // namespace crossmesh
