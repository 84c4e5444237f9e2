#include "controller/store/sqlite/reader_pool.h"

#include "common/base/status_macros.h"

#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<VersionRow> ReadOnly(SqliteStatement& select, const VersionIndex::Row& expected) {
  ASSIGN_OR_RETURN(const bool found, select.Step());
  if (found) {
    ASSIGN_OR_RETURN(VersionRow row, ReadVersion(select));
    // An old page may come back from the disk, with rows that are good by themselves.
    if (row.checksum == expected.checksum) return row;
  }
  return DamagedVersion({.id = expected.id, .revision = expected.revision},
                        found ? "found another row" : "found no row");
}

absl::StatusOr<std::vector<VersionRow>> ReadAll(SqliteStatement& select, int64_t first_id,
                                                int64_t end_id) {
  std::vector<VersionRow> rows;
  for (int64_t id = first_id; id < end_id; ++id) {
    ASSIGN_OR_RETURN(const bool found, select.Step());
    if (!found || select.Int(0) != id) return DamagedVersion({.id = id}, "found no row");
    ASSIGN_OR_RETURN(VersionRow row, ReadVersion(select));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReaderPool::Reader>> ReaderPool::Open(int64_t generation) const {
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> connection,
                   SqliteConnection::Open({.path = path_, .vfs = vfs_, .read_only = true}));
  ASSIGN_OR_RETURN(SqliteStatement select_row,
                   connection->Prepare(absl::StrCat(kSelectVersion, "WHERE id = ?")));
  ASSIGN_OR_RETURN(
      SqliteStatement select_rows,
      connection->Prepare(absl::StrCat(kSelectVersion, "WHERE id >= ? AND id < ? ORDER BY id")));
  return std::make_unique<Reader>(
      Reader{std::move(connection), std::move(select_row), std::move(select_rows), generation});
}

absl::StatusOr<std::unique_ptr<ReaderPool::Reader>> ReaderPool::Borrow() {
  int64_t generation = 0;
  {
    const MutexLock lock(mutex_);
    while (borrowed_ == kReadersMax) is_returned_.Wait(mutex_);
    ++borrowed_;
    generation = generation_;
    if (!idle_.empty()) {
      std::unique_ptr<Reader> reader = std::move(idle_.back());
      idle_.pop_back();
      return reader;
    }
  }
  absl::StatusOr<std::unique_ptr<Reader>> reader = Open(generation);
  if (!reader.ok()) Return(nullptr, reader.status());
  return reader;
}

void ReaderPool::Return(std::unique_ptr<Reader> reader, const absl::Status& status) {
  const MutexLock lock(mutex_);
  --borrowed_;
  is_returned_.Signal();
  if (status.ok() && reader->generation == generation_) idle_.push_back(std::move(reader));
}

absl::StatusOr<VersionRow> ReaderPool::ReadRow(const VersionIndex::Row& row) {
  ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, Borrow());
  reader->select_row.Bind(1, row.id);
  absl::StatusOr<VersionRow> found = ReadOnly(reader->select_row, row);
  reader->select_row.Reset();
  Return(std::move(reader), found.status());
  return found;
}

absl::StatusOr<std::vector<VersionRow>> ReaderPool::ReadRows(int64_t first_id, int64_t end_id) {
  ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, Borrow());
  reader->select_rows.Bind(1, first_id).Bind(2, end_id);
  absl::StatusOr<std::vector<VersionRow>> found = ReadAll(reader->select_rows, first_id, end_id);
  reader->select_rows.Reset();
  Return(std::move(reader), found.status());
  return found;
}

void ReaderPool::DropAll() {
  std::vector<std::unique_ptr<Reader>> dropped;
  const MutexLock lock(mutex_);
  ++generation_;
  dropped.swap(idle_);
}

}  // namespace crossmesh
