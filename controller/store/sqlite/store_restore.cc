#include "common/base/status_macros.h"
#include "controller/store/epoch.h"
#include "controller/store/sqlite/schema.h"
#include "controller/store/sqlite/sqlite_store.h"
#include "controller/store/store_error.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// By which the revisions of a restored store are ahead of its backup: more than the commits that
// the former store can have made since, so that no revision ever names two commits.
constexpr int64_t kRevisionsSkipped = 1'000'000'000;

absl::StatusOr<std::string> RealPath(const std::string& path) {
  std::error_code error;
  const std::string real = std::filesystem::canonical(path, error).string();
  if (error) return absl::NotFoundError(absl::StrCat(path, ": ", error.message()));
  return real;
}

// All that it has belongs to the past, of which no commit is kept.
StoreHead HeadAfterRestore(StoreHead head, absl::Time now) {
  head.revision += kRevisionsSkipped;
  head.epoch = std::max(head.epoch + 1, EpochAt(now));
  head.floor = head.revision;
  head.floor_chain = head.chain;
  return head;
}

absl::Status CopyBackup(const std::string& backup, const StateFolder& folder,
                        const SqliteStoreOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> source,
                   SqliteConnection::Open({.path = backup, .read_only = true}));
  ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> target,
                   SqliteConnection::Open({.path = folder.database_path(), .vfs = options.vfs}));
  RETURN_IF_ERROR(target->CopyFrom(*source));
  ASSIGN_OR_RETURN(const StoreHead head, ReadHead(*target));
  ASSIGN_OR_RETURN(SqliteStatement write, PrepareWriteHead(*target));
  return WriteHead(write, HeadAfterRestore(head, options.clock.Now()));
}

}  // namespace

absl::Status SqliteStore::Restore(const std::string& backup, const Options& options) {
  ASSIGN_OR_RETURN(const std::string real, RealPath(backup));
  ASSIGN_OR_RETURN(const ScanResult scan, ScanFile(real, ""));
  ASSIGN_OR_RETURN(const StateFolder folder,
                   StateFolder::Claim(options.folder, StateFolder::Missing::kIsMade));
  if (folder.has_store()) {
    return StoreError(
        StoreErrorKind::kUnusable,
        absl::StrCat("state folder ", options.folder,
                     ": expected none of a store's files, found some: move them away"));
  }
  RETURN_IF_ERROR(CopyBackup(real, folder, options));
  // The mark comes last: what was only restored in part does not open.
  ASSIGN_OR_RETURN(const ScanResult restored, ScanFile(folder.database_path(), options.vfs));
  ASSIGN_OR_RETURN(const std::unique_ptr<Watermark> watermark,
                   Watermark::Open(folder.watermark_path(), options.vfs));
  RETURN_IF_ERROR(watermark->Write({.revision = restored.head.revision,
                                    .chain = restored.head.chain,
                                    .epoch = restored.head.epoch}));
  RETURN_IF_ERROR(watermark->Sync());
  return folder.Sync();
}

absl::Status SqliteStore::VerifyFolder(const Options& options) {
  ASSIGN_OR_RETURN(const StateFolder folder,
                   StateFolder::Claim(options.folder, StateFolder::Missing::kIsAnError));
  if (!folder.has_store()) {
    return StoreError(StoreErrorKind::kUnusable, absl::StrCat("state folder ", options.folder,
                                                              ": expected a store, found none"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Watermark> watermark,
                   Watermark::Open(folder.watermark_path(), options.vfs));
  const int64_t marked = watermark->mark().has_value() ? watermark->mark()->revision : 0;
  ASSIGN_OR_RETURN(const ScanResult scan, ScanFile(folder.database_path(), options.vfs, marked));
  return CheckAgainst(watermark->mark(), scan);
}

absl::Status SqliteStore::BackUpFolder(const std::string& folder, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string real, RealPath(folder));
  return BackUpDatabase(real + "/store.db", "", path);
}

}  // namespace crossmesh
