#pragma once

#include "common/base/digest.h"
#include "controller/store/sqlite/vfs_file.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// How far a store has come.
struct StoreMark {
  int64_t revision = 0;
  Digest chain;
  uint64_t epoch = 0;

  friend bool operator==(const StoreMark&, const StoreMark&) = default;
};

// The mark of the newest commit in a file of its own, outside the database: so a database that has
// lost its end, or was replaced by an older one, is noticed. Two places of the file are written in
// turn, so that one is whole at any time. Confined to one thread at a time.
class Watermark {
 public:
  static constexpr int64_t kFileBytes = 4096;

  // Opens the file, on the VFS of this name (empty: that of the system), and makes it when there is
  // none; follows no link. kDamaged: neither of its places is whole; Unavailable: the disk refuses.
  static absl::StatusOr<std::unique_ptr<Watermark>> Open(const std::string& path,
                                                         const std::string& vfs);

  // As the file has it; nothing when it is new, or as good as new.
  const std::optional<StoreMark>& mark() const { return mark_; }
  // One of the places was not whole when it was opened: the last write did not end, or a bit is
  // wrong.
  bool was_torn() const { return was_torn_; }

  // It survives this process, and after Sync the machine's end as well.
  absl::Status Write(const StoreMark& mark);
  absl::Status Sync();
  bool is_synced() const { return is_synced_; }

 private:
  explicit Watermark(std::unique_ptr<VfsFile> file) : file_(std::move(file)) {}
  absl::Status Read(const std::string& path);

  const std::unique_ptr<VfsFile> file_;
  std::optional<StoreMark> mark_;
  uint64_t writes_ = 0;
  bool was_torn_ = false;
  bool is_synced_ = true;
};

}  // namespace crossmesh
