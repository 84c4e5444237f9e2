#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "controller/store/metadata_store.h"
#include "controller/store/sqlite/commit_writer.h"
#include "controller/store/sqlite/reader_pool.h"
#include "controller/store/sqlite/state_folder.h"
#include "controller/store/sqlite/store_opening.h"
#include "controller/store/sqlite/store_options.h"
#include "controller/store/sqlite/store_space.h"
#include "controller/store/sqlite/version_index.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// The thread that writes: what comes while the disk is busy goes together with the next commit of
// SQLite. It also does what time asks for. Thread-safe; without a thread of its own,
// thread-compatible.
class StoreWriter {
 public:
  // Transactions in one commit of SQLite, and what may wait for it.
  static constexpr size_t kTogetherMax = 32;
  static constexpr size_t kWaitingMax = 4096;
  static constexpr int64_t kWaitingBytesMax = int64_t{512} << 20;
  // How often the disk may fail within a minute before the store gives up.
  static constexpr size_t kFailuresMax = 3;

  struct Parts {
    const SqliteStoreOptions& options;
    const StateFolder& folder;
    VersionIndex& index;
    ReaderPool& readers;
  };
  static absl::StatusOr<std::unique_ptr<StoreWriter>> Start(const Parts& parts,
                                                            OpenedDatabase opened);
  // Writes what waits, moves the log into the database, and joins.
  ~StoreWriter();

  // As MetadataStore::CommitThen.
  void CommitThen(StoreTransaction transaction, MetadataStore::CommitDone done);

  // Does what time asks for, by now, and returns when that is done.
  void RunDue();
  // As SqliteStore::ReleaseReserve.
  absl::Status ReleaseReserve();

  // No more is written from here on. The first one counts.
  void ReportDamage(const absl::Status& damage);
  absl::Status damage() const;
  // Unavailable while a failed commit may or may not have been written.
  absl::Status readable() const;

  struct Figures {
    int64_t disk_failures = 0;
    bool is_full = false;
    bool is_fatal = false;
  };
  Figures figures() const;

 private:
  struct Waiting {
    StoreTransaction transaction;
    MetadataStore::CommitDone done;
    int64_t bytes = 0;
  };

  StoreWriter(const Parts& parts, OpenedDatabase opened);
  absl::Status Attach();

  void Run();
  // False: it is to stop.
  bool RunOnce();
  void Close();
  bool WaitForWork(std::vector<Waiting>& batch);
  void CommitBatch(std::vector<Waiting> batch);
  // Answers those for which there is no room, and leaves the others.
  void RefuseWithoutRoom(std::vector<Waiting>& batch);
  absl::StatusOr<std::vector<absl::StatusOr<int64_t>>> Write(std::vector<Waiting>& batch);
  absl::Status WriteMark();
  absl::Status MakeRoom();
  void DoWhatIsDue();
  absl::Status DoDue(absl::Duration now);
  // Takes a failure of the disk for what it is: the connection goes, and what a new one finds is
  // true.
  void Recover(const absl::Status& failure);
  absl::Status Reopen();
  void GiveUp(const absl::Status& failure);

  const Parts parts_;

  // Of the thread that writes.
  OpenedDatabase database_;
  std::unique_ptr<CommitWriter> writer_;
  StoreSpace space_;
  std::deque<absl::Duration> failures_;  // within the last minute
  absl::Duration synced_at_;             // the watermark
  absl::Duration emptied_at_;            // the log

  mutable Mutex mutex_;
  CondVar has_work_;
  CondVar has_done_due_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t due_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t due_done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status damage_ ABSL_GUARDED_BY(mutex_);
  absl::Status readable_ ABSL_GUARDED_BY(mutex_);
  Figures figures_ ABSL_GUARDED_BY(mutex_);
  // Whether readable_ is to be looked at.
  std::atomic<bool> is_uncertain_ = false;

  Thread thread_;
};

}  // namespace crossmesh
