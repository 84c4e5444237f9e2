#include "controller/store/sqlite/sqlite_upkeep.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <unistd.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "store-";
constexpr const char* kSuffix = ".db";
constexpr const char* kHalfDone = ".partial";
// A copy that failed is made again sooner than its time would be.
constexpr absl::Duration kRetry = absl::Minutes(1);

absl::Status CannotBeUsed(const std::string& folder, const std::error_code& error) {
  return absl::FailedPreconditionError(
      absl::StrCat("folder for backups ", folder, ": ", error.message()));
}

bool IsBackup(const std::string& name) {
  return absl::StartsWith(name, kPrefix) && absl::EndsWith(name, kSuffix);
}

std::optional<absl::Time> TimeOf(const std::string& file) {
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(file, error);
  if (error) return std::nullopt;
  return absl::FromChrono(std::chrono::file_clock::to_sys(written));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteUpkeep>> SqliteUpkeep::Start(SqliteStore& store,
                                                                  const Clock& clock,
                                                                  Options options) {
  std::unique_ptr<SqliteUpkeep> upkeep(new SqliteUpkeep(store, clock, std::move(options)));
  const std::string& folder = upkeep->options_.backup_folder;
  if (folder.empty()) return upkeep;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return CannotBeUsed(folder, error);
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return CannotBeUsed(folder, std::error_code(errno, std::generic_category()));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> backups, upkeep->Backups());
  {
    const MutexLock lock(upkeep->mutex_);
    if (!backups.empty()) upkeep->backed_up_at_ = TimeOf(backups.back());
  }
  upkeep->thread_ = Thread("backups", [&upkeep = *upkeep] { upkeep.BackUpAgainAndAgain(); });
  return upkeep;
}

SqliteUpkeep::~SqliteUpkeep() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    is_stopping_changed_.SignalAll();
  }
  thread_.Join();
}

StoreCondition SqliteUpkeep::condition() const {
  const SqliteStore::Stats stats = store_.stats();
  const MutexLock lock(mutex_);
  return {.database_bytes = stats.database_bytes,
          .log_bytes = stats.log_bytes,
          .commits_kept = stats.commits_kept,
          .kept_bytes = stats.kept_bytes,
          .free_bytes = stats.free_bytes,
          .free_bytes_min = stats.free_bytes_min,
          .is_full = stats.is_full,
          .is_read_only = stats.is_read_only,
          .corruptions = stats.corruptions,
          .disk_failures = stats.disk_failures,
          .backup_failures = failures_,
          .verified_at = stats.verified_at,
          .backed_up_at = backed_up_at_};
}

// A transaction that is fenced is looked at by the thread that writes, and changes nothing.
void SqliteUpkeep::Ask(std::function<void()> answered) {
  store_.CommitThen({.epoch = 0}, [answered = std::move(answered)](const absl::StatusOr<int64_t>&) {
    answered();
  });
}

absl::StatusOr<std::vector<std::string>> SqliteUpkeep::Backups() const {
  std::vector<std::string> backups;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(options_.backup_folder, error)) {
    const std::string name = entry.path().filename();
    if (IsBackup(name)) backups.push_back(entry.path());
    if (absl::StartsWith(name, kPrefix) && absl::EndsWith(name, kHalfDone)) {
      fs::remove(entry.path(), error);
    }
  }
  if (error) return CannotBeUsed(options_.backup_folder, error);
  // By their names, which begin with their times.
  std::ranges::sort(backups);
  return backups;
}

absl::StatusOr<std::string> SqliteUpkeep::BackUp() {
  if (options_.backup_folder.empty()) {
    return absl::FailedPreconditionError(
        "store: expected a folder for backups, as of --backup-dir, found none");
  }
  const MutexLock lock(backing_up_);
  absl::StatusOr<std::string> file = BackUpNow();
  const MutexLock figures(mutex_);
  if (file.ok()) {
    backed_up_at_ = clock_.Now();
  } else {
    ++failures_;
  }
  return file;
}

absl::StatusOr<std::string> SqliteUpkeep::BackUpNow() {
  // Before, so that what is committed meanwhile is in the next one at the latest.
  const int64_t revision = store_.revision();
  std::error_code error;
  if (copied_revision_ == revision && fs::exists(copy_, error)) return copy_;
  RETURN_IF_ERROR(Backups().status());
  const std::string file = absl::StrFormat(
      "%s/%s%s-%d%s", options_.backup_folder, kPrefix,
      absl::FormatTime("%Y%m%dT%H%M%E3SZ", clock_.Now(), absl::UTCTimeZone()), revision, kSuffix);
  const std::string half_done = file + kHalfDone;
  const absl::Status copied = store_.Backup(half_done);
  if (!copied.ok() || std::rename(half_done.c_str(), file.c_str()) != 0) {
    const absl::Status failed =
        copied.ok() ? absl::ErrnoToStatus(errno, absl::StrCat("backup ", file)) : copied;
    fs::remove(half_done, error);
    return failed;
  }
  copied_revision_ = revision;
  copy_ = file;
  RemoveOld();
  return file;
}

void SqliteUpkeep::RemoveOld() const {
  const absl::StatusOr<std::vector<std::string>> backups = Backups();
  if (!backups.ok()) return;
  std::error_code error;
  for (int64_t i = 0; i < std::ssize(*backups) - options_.backups_kept; ++i) {
    fs::remove((*backups)[static_cast<size_t>(i)], error);
  }
}

void SqliteUpkeep::BackUpAgainAndAgain() {
  absl::Duration wait = absl::ZeroDuration();
  {
    const MutexLock lock(mutex_);
    if (backed_up_at_.has_value()) {
      const absl::Duration age = clock_.Now() - *backed_up_at_;
      // A time to come is of a clock that was wrong.
      if (age >= absl::ZeroDuration()) wait = options_.backup_every - age;
    }
  }
  while (true) {
    {
      const MutexLock lock(mutex_);
      const absl::Duration due = clock_.Monotonic() + wait;
      while (!is_stopping_ && clock_.Monotonic() < due) {
        is_stopping_changed_.WaitFor(mutex_, due - clock_.Monotonic());
      }
      if (is_stopping_) return;
    }
    const absl::StatusOr<std::string> file = BackUp();
    if (file.ok()) {
      LogInfo("store_backed_up", {{"file", *file}});
    } else {
      LogError("store_not_backed_up", {{"status", file.status().ToString()}});
    }
    wait = file.ok() ? options_.backup_every : std::min(kRetry, options_.backup_every);
  }
}

}  // namespace crossmesh
