#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "controller/store/metadata_store.h"
#include "controller/store/sqlite/reader_pool.h"
#include "controller/store/sqlite/state_folder.h"
#include "controller/store/sqlite/store_opening.h"
#include "controller/store/sqlite/store_options.h"
#include "controller/store/sqlite/store_writer.h"
#include "controller/store/sqlite/version_index.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Keeps everything in a folder of this host, so that it survives this process and the machine's
// end: in a database of SQLite, with what SQLite alone does not notice of its own loss beside it
// (docs/adr/0034-the-durable-store.md). Thread-safe.
class SqliteStore final : public MetadataStore {
 public:
  using Options = SqliteStoreOptions;

  // Makes the folder when there is none. StoreError: kLocked, at once, when another process has it;
  // kTooNew; kUnusable; kDamaged, with the place, or with both revisions when commits are lost;
  // kFull. Unavailable: the disk refuses. Cost: reads the whole database, or, above
  // `checked_at_open_bytes`, all of it but values.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const Options& options);
  // Writes what waits. No call may be under way.
  ~SqliteStore() override;

  // The fencing number for a controller that begins now: greater than that of any transaction, and
  // than what an earlier controller has taken from its clock. The first commit is to have it.
  uint64_t next_epoch() const { return next_epoch_; }

  void CommitThen(StoreTransaction transaction, CommitDone done) override;
  absl::StatusOr<StoredObject> Get(absl::string_view key) const override;
  absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const override;
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix, absl::string_view after,
                                                 int64_t limit) const override;
  int64_t revision() const override;
  absl::StatusOr<std::vector<StoredCommit>> CommitsAfter(int64_t revision, int64_t limit,
                                                         absl::Duration wait) const override;

  // Reads the whole database as the disk has it. After kDamaged nothing is written any more.
  absl::Status Verify();
  // Writes a copy to a file that does not exist, and verifies it. FailedPrecondition: there is such
  // a file, or none can be made there.
  absl::Status Backup(const std::string& path);
  // Gives the reserve's room to deletes, until there is room for everything again.
  absl::Status ReleaseReserve() { return writer_->ReleaseReserve(); }
  // Does at once what the store does by itself as time goes by.
  void RunDue() { writer_->RunDue(); }

  struct Stats {
    int64_t revision = 0;
    int64_t objects = 0;
    int64_t commits_kept = 0;
    int64_t kept_bytes = 0;  // of what these wrote
    int64_t database_bytes = 0;
    int64_t log_bytes = 0;
    int64_t free_bytes = 0;
    int64_t free_bytes_min = 0;  // as its options say
    bool is_full = false;
    bool is_read_only = false;  // as it is damaged, or its disk has failed too often
    int64_t disk_failures = 0;
    int64_t corruptions = 0;                // found since it was opened
    std::optional<absl::Time> verified_at;  // all of it, and it was good
    std::optional<absl::Time> backed_up_at;
  };
  Stats stats() const;

  // Makes a store of a backup in a folder that has none. Revisions and epochs go on beyond all that
  // the former store can have given out. kUnusable: there is a store; else as Open of the backup.
  static absl::Status Restore(const std::string& backup, const Options& options);

  // What is wrong with the store of a folder that no process has; nothing there is changed.
  static absl::Status VerifyFolder(const Options& options);
  // Backs up the store of a folder, whether a process has it or not.
  static absl::Status BackUpFolder(const std::string& folder, const std::string& path);

 private:
  SqliteStore(const Options& options, StateFolder folder);

  absl::StatusOr<StoredObject> ReadObject(const std::string& key,
                                          const VersionIndex::Row& row) const;
  // Remembers damage.
  absl::Status Noted(const absl::Status& status) const;
  void VerifyAgainAndAgain();

  const Options options_;
  const StateFolder folder_;
  uint64_t next_epoch_ = 0;
  VersionIndex index_;
  mutable ReaderPool readers_;
  std::unique_ptr<StoreWriter> writer_;

  mutable std::atomic<int64_t> corruptions_ = 0;
  mutable Mutex mutex_;
  CondVar is_stopping_changed_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Time> verified_at_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Time> backed_up_at_ ABSL_GUARDED_BY(mutex_);
  Thread verifier_;
};

}  // namespace crossmesh
