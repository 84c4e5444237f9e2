#include "controller/store/sqlite/state_folder.h"

#include "common/base/status_macros.h"
#include "controller/store/store_error.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/string_view.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

absl::Status Unusable(const std::string& path, absl::string_view what) {
  return StoreError(StoreErrorKind::kUnusable, absl::StrCat("state folder ", path, ": ", what));
}

absl::Status SystemError(const std::string& path, absl::string_view action) {
  return Unusable(path, absl::StrCat(action, ": ", std::strerror(errno)));  // NOLINT
}

absl::Status CheckFolder(const std::string& path, const UniqueFd& folder) {
  struct stat found = {};
  if (fstat(folder.get(), &found) != 0) return SystemError(path, "cannot be looked at");
  if (found.st_uid != geteuid()) {
    return Unusable(path,
                    absl::StrCat("expected it to be of user ", geteuid(), ", found it of user ",
                                 found.st_uid, ": run this as that user"));
  }
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Unusable(path, absl::StrFormat("expected that only its owner may write to it, found "
                                          "mode %o: chmod go-w it",
                                          found.st_mode & 07777));
  }
  return absl::OkStatus();
}

// The process that has the lock wrote its number there.
absl::Status IsLocked(const std::string& path, const UniqueFd& lock) {
  std::array<char, 32> text = {};
  const ssize_t size = pread(lock.get(), text.data(), text.size() - 1, 0);
  const absl::string_view pid(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  return StoreError(
      StoreErrorKind::kLocked,
      absl::StrCat("state folder ", path, ": expected no other controller, found process ",
                   pid.empty() ? "(unknown)" : pid));
}

absl::StatusOr<UniqueFd> Lock(const std::string& path, const UniqueFd& folder) {
  UniqueFd lock(
      openat(folder.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!lock.valid()) return SystemError(path, "its file lock cannot be opened");
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return IsLocked(path, lock);
    return SystemError(path, "its file lock cannot be locked");
  }
  // For people and messages only: whether it can be written does not matter.
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(lock.get(), 0) == 0) {
    [[maybe_unused]] const ssize_t written = pwrite(lock.get(), pid.data(), pid.size(), 0);
  }
  return lock;
}

}  // namespace

absl::StatusOr<StateFolder> StateFolder::Claim(const std::string& path, Missing missing) {
  if (missing == Missing::kIsMade && mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return SystemError(path, "cannot be made");
  }
  // The folder itself may be behind a link, as a service manager's are; nothing inside may.
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (real == nullptr) return SystemError(path, "cannot be found");
  UniqueFd folder(open(real.get(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return SystemError(path, "cannot be opened as a folder");
  RETURN_IF_ERROR(CheckFolder(path, folder));
  ASSIGN_OR_RETURN(UniqueFd lock, Lock(path, folder));
  return StateFolder(real.get(), std::move(folder), std::move(lock));
}

bool StateFolder::has_store() const {
  struct stat found = {};
  return lstat(database_path().c_str(), &found) == 0 ||
         lstat(watermark_path().c_str(), &found) == 0;
}

absl::Status StateFolder::Sync() const {
  return fsync(folder_.get()) == 0 ? absl::OkStatus() : SystemError(path_, "cannot be synced");
}

absl::Status StateFolder::MakeReserve(int64_t bytes) const {
  const UniqueFd file(openat(folder_.get(), "reserve",
                             O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  const int error = file.valid() ? posix_fallocate(file.get(), 0, bytes) : errno;
  if (error == 0) return absl::OkStatus();
  RETURN_IF_ERROR(RemoveReserve());
  return absl::UnavailableError(absl::StrCat("state folder ", path_, ": no reserve of ", bytes,
                                             " bytes: ", std::strerror(error)));  // NOLINT
}

bool StateFolder::has_reserve() const {
  struct stat found = {};
  return lstat(reserve_path().c_str(), &found) == 0;
}

absl::Status StateFolder::RemoveReserve() const {
  if (unlinkat(folder_.get(), "reserve", 0) == 0 || errno == ENOENT) return absl::OkStatus();
  return SystemError(path_, "its reserve cannot be removed");
}

}  // namespace crossmesh
