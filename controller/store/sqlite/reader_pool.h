#pragma once

#include "common/base/mutex.h"
#include "controller/store/sqlite/sqlite_connection.h"
#include "controller/store/sqlite/store_scan.h"
#include "controller/store/sqlite/version_index.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Connections that only read, opened as threads need them, a few at most. Thread-safe.
class ReaderPool {
 public:
  static constexpr int kReadersMax = 8;

  ReaderPool(std::string path, std::string vfs) : path_(std::move(path)), vfs_(std::move(vfs)) {}

  // The row of this id, which the caller's VersionIndex::Reading keeps. kDamaged: there is none, or
  // it is not as it was written; Unavailable: the disk refuses.
  absl::StatusOr<VersionRow> ReadRow(const VersionIndex::Row& row);
  // All rows with these ids, which kept commits have.
  absl::StatusOr<std::vector<VersionRow>> ReadRows(int64_t first_id, int64_t end_id);

  // No connection that is open now is used again.
  void DropAll();

 private:
  struct Reader {
    std::unique_ptr<SqliteConnection> connection;
    SqliteStatement select_row;
    SqliteStatement select_rows;
    int64_t generation = 0;
  };

  absl::StatusOr<std::unique_ptr<Reader>> Borrow();
  absl::StatusOr<std::unique_ptr<Reader>> Open(int64_t generation) const;
  // `reader` is not kept after an error.
  void Return(std::unique_ptr<Reader> reader, const absl::Status& status);

  const std::string path_;
  const std::string vfs_;
  Mutex mutex_;
  CondVar is_returned_;
  std::vector<std::unique_ptr<Reader>> idle_ ABSL_GUARDED_BY(mutex_);
  int borrowed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
