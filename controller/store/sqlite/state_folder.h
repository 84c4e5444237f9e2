#pragma once

#include "common/base/unique_fd.h"

#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The folder of a store, which belongs to one process: by a lock that the system drops at the
// process's end, however it ends. Thread-compatible.
class StateFolder {
 public:
  enum class Missing { kIsMade, kIsAnError };

  // Makes the folder, for its owner alone, when there is none. StoreError: kLocked, with the other
  // process; kUnusable: no folder, or one that others may write to, or that this user may not.
  static absl::StatusOr<StateFolder> Claim(const std::string& path, Missing missing);

  StateFolder(StateFolder&&) = default;
  StateFolder& operator=(StateFolder&&) = delete;

  // Without links.
  const std::string& path() const { return path_; }
  std::string database_path() const { return path_ + "/store.db"; }
  std::string watermark_path() const { return path_ + "/watermark"; }
  std::string backups_path() const { return path_ + "/backups"; }
  std::string reserve_path() const { return path_ + "/reserve"; }

  // Has a file of ours been made here?
  bool has_store() const;
  // The folder's own names survive the machine's end.
  absl::Status Sync() const;

  // A file that only takes room, to be given up when there is none left. Unavailable: the disk
  // refuses, and there is none.
  absl::Status MakeReserve(int64_t bytes) const;
  bool has_reserve() const;
  absl::Status RemoveReserve() const;

 private:
  StateFolder(std::string path, UniqueFd folder, UniqueFd lock)
      : path_(std::move(path)), folder_(std::move(folder)), lock_(std::move(lock)) {}

  const std::string path_;
  UniqueFd folder_;
  UniqueFd lock_;
};

}  // namespace crossmesh
