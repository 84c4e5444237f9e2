#include "controller/store/sqlite/store_opening.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "controller/store/sqlite/schema.h"
#include "controller/store/sqlite/vfs_file.h"
#include "controller/store/store_error.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <random>
#include <system_error>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

Digest RandomDigest() {
  std::random_device random;
  const auto word = [&] { return uint64_t{random()} << 32 | random(); };
  return {.high = word(), .low = word()};
}

absl::Status MakeBackupBefore(const StateFolder& folder, const std::string& vfs, int64_t version) {
  if (mkdir(folder.backups_path().c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat("cannot make ", folder.backups_path()));
  }
  const std::string path =
      absl::StrCat(folder.backups_path(), "/before-schema-", version + 1, ".db");
  // One that an earlier try has made is of the same database.
  struct stat found = {};
  if (lstat(path.c_str(), &found) == 0) return absl::OkStatus();
  return BackUpDatabase(folder.database_path(), vfs, path);
}

// A database that was only just made has no head yet.
absl::Status MakeHead(SqliteConnection& connection) {
  ASSIGN_OR_RETURN(const int64_t rows,
                   connection.ReadInt("SELECT (SELECT count(*) FROM meta) + "
                                      "(SELECT count(*) FROM (SELECT 1 FROM versions LIMIT 1))"));
  if (rows > 0) return absl::OkStatus();
  const Digest beginning = RandomDigest();
  ASSIGN_OR_RETURN(SqliteStatement write, PrepareWriteHead(connection));
  return WriteHead(write, {.chain = beginning, .floor_chain = beginning});
}

// Writes the log of a store that did not end by itself once more, as it is. A sync of it may have
// failed, of which its pages in the system's cache say nothing; moved into the database from there,
// and lost with the power, it would leave a database that is partly older and partly newer.
absl::Status RewriteLog(const StateFolder& folder, const std::string& vfs) {
  ASSIGN_OR_RETURN(const std::unique_ptr<VfsFile> log,
                   VfsFile::Open(folder.database_path() + "-wal", vfs));
  ASSIGN_OR_RETURN(const int64_t size, log->Size());
  if (size == 0) return absl::OkStatus();
  for (int64_t offset = 0; offset < size; offset += VfsFile::kBytesMax) {
    ASSIGN_OR_RETURN(const std::string bytes,
                     log->Read(offset, std::min(VfsFile::kBytesMax, size - offset)));
    RETURN_IF_ERROR(log->Write(offset, bytes));
  }
  return log->Sync();
}

absl::Status Prepare(const StateFolder& folder, const SqliteStoreOptions& options,
                     const std::optional<StoreMark>& mark, SqliteConnection& connection) {
  ASSIGN_OR_RETURN(const int64_t version, SchemaVersion(connection));
  if (version == 0 && mark.has_value()) {
    return StoreError(StoreErrorKind::kDamaged,
                      absl::StrCat("database: expected revision ", mark->revision,
                                   " at least, as the watermark says, found none"));
  }
  if (version == 0) RETURN_IF_ERROR(connection.Execute("PRAGMA auto_vacuum = INCREMENTAL"));
  ASSIGN_OR_RETURN(const std::string mode, connection.ReadText("PRAGMA journal_mode = WAL"));
  if (mode != "wal") return absl::InternalError(absl::StrCat("journal mode is ", mode));
  RETURN_IF_ERROR(MigrateSchema(connection, SchemaMigrations(), [&](int64_t from) {
    return MakeBackupBefore(folder, options.vfs, from);
  }));
  if (!mark.has_value()) RETURN_IF_ERROR(MakeHead(connection));
  // Nothing of the log is left to the past.
  ASSIGN_OR_RETURN(const bool emptied,
                   connection.RunCheckpoint(SqliteConnection::Checkpoint::kTruncate));
  if (!emptied) return absl::UnavailableError("database: something else reads it");
  return version == 0 ? folder.Sync() : absl::OkStatus();
}

}  // namespace

absl::Status CheckAgainst(const std::optional<StoreMark>& mark, const ScanResult& scan) {
  if (!mark.has_value()) {
    if (scan.head.revision == 0) return absl::OkStatus();
    return StoreError(StoreErrorKind::kDamaged,
                      absl::StrCat("watermark: expected a revision, found none, beside a database "
                                   "of revision ",
                                   scan.head.revision));
  }
  if (scan.head.revision < mark->revision) {
    return StoreError(StoreErrorKind::kDamaged,
                      absl::StrCat("database: expected revision ", mark->revision,
                                   " at least, as the watermark says, found revision ",
                                   scan.head.revision, ": commits are lost"));
  }
  if (scan.chain_of.has_value() && *scan.chain_of != mark->chain) {
    return StoreError(StoreErrorKind::kDamaged,
                      absl::StrCat("database: at revision ", mark->revision, " expected chain ",
                                   mark->chain.ToString(), ", as the watermark says, found ",
                                   scan.chain_of->ToString(), ": another history"));
  }
  return absl::OkStatus();
}

absl::StatusOr<OpenedDatabase> OpenDatabase(const StateFolder& folder,
                                            const SqliteStoreOptions& options) {
  OpenedDatabase opened;
  RETURN_IF_ERROR(RewriteLog(folder, options.vfs));
  ASSIGN_OR_RETURN(opened.connection,
                   SqliteConnection::Open({.path = folder.database_path(), .vfs = options.vfs}));
  ASSIGN_OR_RETURN(opened.watermark, Watermark::Open(folder.watermark_path(), options.vfs));
  const std::optional<StoreMark> mark = opened.watermark->mark();
  if (opened.watermark->was_torn()) {
    LogWarning("watermark_torn", {{"path", folder.watermark_path()}});
  }
  SqliteConnection& connection = *opened.connection;
  RETURN_IF_ERROR(Prepare(folder, options, mark, connection));
  ASSIGN_OR_RETURN(const int64_t pages, connection.ReadInt("PRAGMA page_count"));
  ASSIGN_OR_RETURN(const int64_t page_bytes, connection.ReadInt("PRAGMA page_size"));
  opened.values_checked = pages * page_bytes <= options.checked_at_open_bytes;
  ASSIGN_OR_RETURN(opened.scan,
                   ScanStore(connection, {.whole = opened.values_checked,
                                          .chain_of = mark.has_value() ? mark->revision : 0}));
  RETURN_IF_ERROR(CheckAgainst(mark, opened.scan));
  const StoreHead& head = opened.scan.head;
  RETURN_IF_ERROR(opened.watermark->Write(
      {.revision = head.revision, .chain = head.chain, .epoch = head.epoch}));
  RETURN_IF_ERROR(opened.watermark->Sync());
  return opened;
}

absl::StatusOr<ScanResult> ScanFile(const std::string& path, const std::string& vfs,
                                    int64_t chain_of) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> connection,
                   SqliteConnection::Open({.path = path, .vfs = vfs, .read_only = true}));
  ASSIGN_OR_RETURN(const int64_t version, SchemaVersion(*connection));
  if (version > std::ssize(SchemaMigrations())) {
    return StoreError(StoreErrorKind::kTooNew,
                      absl::StrCat(path, ": expected schema version ", SchemaMigrations().size(),
                                   " at most, found ", version));
  }
  absl::StatusOr<ScanResult> scan = ScanStore(*connection, {.whole = true, .chain_of = chain_of});
  if (!scan.ok()) return StoreErrorAt(path, scan.status());
  return scan;
}

absl::Status BackUpDatabase(const std::string& database, const std::string& vfs,
                            const std::string& path) {
  const std::string partial = path + ".partial";
  struct stat found = {};
  if (lstat(path.c_str(), &found) == 0) {
    return absl::FailedPreconditionError(absl::StrCat("backup ", path, ": is there already"));
  }
  // What an earlier try has left is only ever a part of a backup.
  unlink(partial.c_str());
  const UniqueFd made(
      open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!made.valid()) {
    return absl::FailedPreconditionError(absl::StrCat("backup ", path, ": cannot be made: ",
                                                      std::strerror(errno)));  // NOLINT
  }
  absl::Cleanup remove = [&] { unlink(partial.c_str()); };
  std::error_code error;
  const std::string real = std::filesystem::canonical(partial, error).string();
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> source,
                     SqliteConnection::Open({.path = database, .vfs = vfs, .read_only = true}));
    ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> target,
                     SqliteConnection::Open({.path = real}));
    RETURN_IF_ERROR(target->CopyFrom(*source));
    // One file, with no log beside it.
    RETURN_IF_ERROR(target->ReadText("PRAGMA journal_mode = DELETE").status());
  }
  RETURN_IF_ERROR(ScanFile(real, "").status());
  const std::string folder = std::filesystem::path(real).parent_path().string();
  const UniqueFd folder_fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fsync(made.get()) != 0 || std::rename(partial.c_str(), path.c_str()) != 0 ||
      fsync(folder_fd.get()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("backup ", path, ": ", std::strerror(errno)));  // NOLINT
  }
  std::move(remove).Cancel();
  return absl::OkStatus();
}

}  // namespace crossmesh
