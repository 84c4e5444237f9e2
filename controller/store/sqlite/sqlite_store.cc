#include "controller/store/sqlite/sqlite_store.h"

#include "common/base/free_space.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "controller/store/epoch.h"
#include "controller/store/store_error.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <sys/stat.h>

namespace crossmesh {
namespace {

// Of values that one call for commits returns.
constexpr int64_t kCommitsBytesMax = int64_t{64} << 20;
// How often the verifier looks at the clock.
constexpr absl::Duration kVerifierTick = absl::Seconds(1);

int64_t FileBytes(const std::string& path) {
  struct stat found = {};
  return lstat(path.c_str(), &found) == 0 ? static_cast<int64_t>(found.st_size) : 0;
}

}  // namespace

SqliteStore::SqliteStore(const Options& options, StateFolder folder)
    : options_(options),
      folder_(std::move(folder)),
      readers_(folder_.database_path(), options.vfs) {}

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const Options& options) {
  ASSIGN_OR_RETURN(StateFolder folder,
                   StateFolder::Claim(options.folder, StateFolder::Missing::kIsMade));
  std::unique_ptr<SqliteStore> store(new SqliteStore(options, std::move(folder)));
  ASSIGN_OR_RETURN(OpenedDatabase opened, OpenDatabase(store->folder_, store->options_));
  store->next_epoch_ = std::max({opened.scan.head.epoch + 1, opened.watermark->mark()->epoch + 1,
                                 EpochAt(options.clock.Now())});
  if (opened.values_checked) {
    const MutexLock lock(store->mutex_);
    store->verified_at_ = options.clock.Now();
  }
  ASSIGN_OR_RETURN(store->writer_, StoreWriter::Start({.options = store->options_,
                                                       .folder = store->folder_,
                                                       .index = store->index_,
                                                       .readers = store->readers_},
                                                      std::move(opened)));
  if (options.has_threads) {
    store->verifier_ =
        Thread("store-verifier", [store = store.get()] { store->VerifyAgainAndAgain(); });
  }
  return store;
}

SqliteStore::~SqliteStore() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    is_stopping_changed_.SignalAll();
  }
  verifier_.Join();
  readers_.DropAll();  // else they would keep the log from being emptied
  writer_.reset();
}

void SqliteStore::CommitThen(StoreTransaction transaction, CommitDone done) {
  writer_->CommitThen(std::move(transaction), std::move(done));
}

absl::StatusOr<StoredObject> SqliteStore::Get(absl::string_view key) const {
  RETURN_IF_ERROR(writer_->readable());
  const VersionIndex::Reading reading = index_.BeginReading();
  const std::optional<VersionIndex::Row> row = index_.Find(key);
  if (!row.has_value()) return absl::NotFoundError(absl::StrCat("no object ", key));
  return ReadObject(std::string(key), *row);
}

absl::StatusOr<StoredObject> SqliteStore::ReadObject(const std::string& key,
                                                     const VersionIndex::Row& row) const {
  absl::StatusOr<VersionRow> found = readers_.ReadRow(row);
  RETURN_IF_ERROR(Noted(found.status()));
  if (found->key != key || !found->value.has_value()) {
    return Noted(DamagedVersion({.id = row.id, .revision = row.revision, .key = key},
                                "found another object"));
  }
  return StoredObject{key, *std::move(found->value), row.revision};
}

absl::StatusOr<int64_t> SqliteStore::RevisionOf(absl::string_view key) const {
  RETURN_IF_ERROR(writer_->readable());
  const std::optional<VersionIndex::Row> row = index_.Find(key);
  return row.has_value() ? row->revision : 0;
}

absl::StatusOr<std::vector<StoredObject>> SqliteStore::List(absl::string_view prefix,
                                                            absl::string_view after,
                                                            int64_t limit) const {
  RETURN_IF_ERROR(writer_->readable());
  const VersionIndex::Reading reading = index_.BeginReading();
  std::vector<StoredObject> objects;
  for (const auto& [key, row] : index_.List(prefix, after, limit)) {
    ASSIGN_OR_RETURN(StoredObject object, ReadObject(key, row));
    objects.push_back(std::move(object));
  }
  return objects;
}

int64_t SqliteStore::revision() const { return index_.revision(); }

absl::StatusOr<std::vector<StoredCommit>> SqliteStore::CommitsAfter(int64_t revision, int64_t limit,
                                                                    absl::Duration wait) const {
  index_.WaitAfter(revision, wait);
  RETURN_IF_ERROR(writer_->readable());
  const VersionIndex::Reading reading = index_.BeginReading();
  ASSIGN_OR_RETURN(const VersionIndex::Range range,
                   index_.CommitsAfter(revision, limit, kCommitsBytesMax));
  std::vector<StoredCommit> commits;
  for (int64_t i = 0; i < range.count; ++i)
    commits.push_back({.revision = range.first_revision + i});
  if (range.first_id == range.end_id) return commits;
  absl::StatusOr<std::vector<VersionRow>> rows = readers_.ReadRows(range.first_id, range.end_id);
  RETURN_IF_ERROR(Noted(rows.status()));
  for (VersionRow& row : *rows) {
    const int64_t commit = row.revision - range.first_revision;
    if (commit < 0 || commit >= range.count) {
      return Noted(DamagedVersion({.id = row.id, .revision = row.revision, .key = row.key},
                                  "expected a row of another commit"));
    }
    commits[commit].writes.push_back({std::move(row.key), std::move(row.value)});
  }
  return commits;
}

absl::Status SqliteStore::Noted(const absl::Status& status) const {
  if (StoreErrorKindOf(status) == StoreErrorKind::kDamaged) {
    ++corruptions_;
    writer_->ReportDamage(status);
  }
  return status;
}

absl::Status SqliteStore::Verify() {
  RETURN_IF_ERROR(writer_->readable());
  RETURN_IF_ERROR(Noted(ScanFile(folder_.database_path(), options_.vfs).status()));
  const MutexLock lock(mutex_);
  verified_at_ = options_.clock.Now();
  return absl::OkStatus();
}

absl::Status SqliteStore::Backup(const std::string& path) {
  RETURN_IF_ERROR(writer_->readable());
  RETURN_IF_ERROR(BackUpDatabase(folder_.database_path(), options_.vfs, path));
  const MutexLock lock(mutex_);
  backed_up_at_ = options_.clock.Now();
  return absl::OkStatus();
}

void SqliteStore::VerifyAgainAndAgain() {
  std::optional<absl::Duration> verified_at;
  {
    const MutexLock lock(mutex_);
    if (verified_at_.has_value()) verified_at = options_.clock.Monotonic();
  }
  while (true) {
    const absl::Duration now = options_.clock.Monotonic();
    if (!verified_at.has_value() || now - *verified_at >= options_.verify_interval) {
      verified_at = now;
      const absl::Status verified = Verify();
      if (!verified.ok()) LogWarning("store_not_verified", {{"status", verified.message()}});
    }
    const MutexLock lock(mutex_);
    if (!is_stopping_) is_stopping_changed_.WaitFor(mutex_, kVerifierTick);
    if (is_stopping_) return;
  }
}

SqliteStore::Stats SqliteStore::stats() const {
  const StoreWriter::Figures figures = writer_->figures();
  const VersionIndex::Kept kept = index_.kept();
  const std::optional<int64_t> free =
      options_.free_bytes ? options_.free_bytes() : FreeBytesAt(folder_.path());
  const MutexLock lock(mutex_);
  return {.revision = index_.revision(),
          .objects = index_.size(),
          .commits_kept = kept.commits,
          .kept_bytes = kept.bytes,
          .database_bytes = FileBytes(folder_.database_path()),
          .log_bytes = FileBytes(folder_.database_path() + "-wal"),
          .free_bytes = free.value_or(0),
          .free_bytes_min = options_.free_bytes_min,
          .is_full = figures.is_full,
          .is_read_only = figures.is_fatal || !writer_->damage().ok(),
          .disk_failures = figures.disk_failures,
          .corruptions = corruptions_,
          .verified_at = verified_at_,
          .backed_up_at = backed_up_at_};
}

}  // namespace crossmesh
