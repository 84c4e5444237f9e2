#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "controller/store/sqlite/sqlite_store.h"
#include "controller/store/store_upkeep.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// Keeps a store in good order while its controller runs: copies it again and again into a folder,
// of which the newest copies are kept. Each is verified. Thread-safe.
class SqliteUpkeep final : public StoreUpkeep {
 public:
  struct Options {
    std::string backup_folder;  // empty: no copies are made by themselves
    absl::Duration backup_every = absl::Minutes(15);
    int64_t backups_kept = 16;
  };
  // `store` outlives it. FailedPrecondition: the folder cannot be made or read.
  static absl::StatusOr<std::unique_ptr<SqliteUpkeep>> Start(SqliteStore& store, const Clock& clock,
                                                             Options options);
  ~SqliteUpkeep() override;

  StoreCondition condition() const override;
  absl::Status Verify() override { return store_.Verify(); }
  // A store that has not changed since its last copy has that one.
  absl::StatusOr<std::string> BackUp() override;
  absl::Status ReleaseReserve() override { return store_.ReleaseReserve(); }
  void Ask(std::function<void()> answered) override;

 private:
  SqliteUpkeep(SqliteStore& store, const Clock& clock, Options options)
      : store_(store), clock_(clock), options_(std::move(options)) {}

  // The copies that are there, oldest first; what a former process has left half done goes.
  absl::StatusOr<std::vector<std::string>> Backups() const;
  absl::StatusOr<std::string> BackUpNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(backing_up_);
  void RemoveOld() const;
  void BackUpAgainAndAgain();

  SqliteStore& store_;
  const Clock& clock_;
  const Options options_;

  Mutex backing_up_;
  std::optional<int64_t> copied_revision_ ABSL_GUARDED_BY(backing_up_);
  std::string copy_ ABSL_GUARDED_BY(backing_up_);

  mutable Mutex mutex_;
  CondVar is_stopping_changed_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Time> backed_up_at_ ABSL_GUARDED_BY(mutex_);
  int64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  Thread thread_;
};

}  // namespace crossmesh
