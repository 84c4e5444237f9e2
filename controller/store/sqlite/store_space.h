#pragma once

#include "controller/store/sqlite/state_folder.h"
#include "controller/store/sqlite/store_options.h"

#include <atomic>
#include <cstdint>

#include <absl/status/status.h>

namespace crossmesh {

// Whether there is room to write. Thread-safe.
class StoreSpace {
 public:
  StoreSpace(const StateFolder& folder, const SqliteStoreOptions& options)
      : folder_(folder), options_(options) {}

  enum class Kind { kWrite, kDelete };
  // kFull, with what is free and what is needed: no room for so many bytes and what SQLite makes of
  // them. Deletes have room once the reserve is released.
  absl::Status Check(Kind kind, int64_t bytes) const;

  // Gives the reserve's room to deletes, until there is enough for all again.
  absl::Status ReleaseReserve();
  // Makes the reserve when there is none and room for it.
  void RestoreReserve();

  int64_t free_bytes() const;

 private:
  const StateFolder& folder_;
  const SqliteStoreOptions& options_;
  std::atomic<bool> is_released_ = false;
};

}  // namespace crossmesh
