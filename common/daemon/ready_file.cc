#include "common/daemon/ready_file.h"

#include "common/base/status_macros.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

absl::Status CannotBeWritten(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("ready file ", path, ": cannot be written: ",
                                             std::strerror(errno)));  // NOLINT
}

absl::Status IsAnothers(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat("ready file ", path, ": expected none of a process that lives, found one"));
}

// Whether the file at the path is the one that is open: it may have been replaced since.
bool IsAt(const std::string& path, const UniqueFd& fd) {
  struct stat opened = {};
  struct stat found = {};
  return fstat(fd.get(), &opened) == 0 && lstat(path.c_str(), &found) == 0 &&
         opened.st_dev == found.st_dev && opened.st_ino == found.st_ino;
}

// FailedPrecondition: there is something that is no regular file, so none that a daemon has made. A
// link is none either: what it leads to is not replaced by a file of its name.
absl::Status CheckRegular(const std::string& path) {
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "ready file ", path, ": expected a regular file or none there, found another kind of file"));
}

// The open file of the path with the lock on it. `flags`: of open.
absl::StatusOr<UniqueFd> OpenLocked(const std::string& path, int flags) {
  RETURN_IF_ERROR(CheckRegular(path));
  // Without waiting for what else may be there by now.
  UniqueFd fd(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
  if (!fd.valid()) return CannotBeWritten(path);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? IsAnothers(path) : CannotBeWritten(path);
  }
  if (!IsAt(path, fd)) return IsAnothers(path);
  return fd;
}

// FailedPrecondition: a process that lives has it.
absl::Status RemoveStale(const std::string& path) {
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0 && errno == ENOENT) return absl::OkStatus();
  RETURN_IF_ERROR(OpenLocked(path, O_RDONLY).status());
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : CannotBeWritten(path);
}

bool WriteAll(const UniqueFd& fd, absl::string_view text) {
  if (ftruncate(fd.get(), 0) != 0) return false;
  while (!text.empty()) {
    const ssize_t written = write(fd.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(written);
  }
  return true;
}

}  // namespace

absl::StatusOr<ReadyFile> ReadyFile::Claim(const std::string& path) {
  if (path.empty()) return ReadyFile(path, UniqueFd());
  RETURN_IF_ERROR(CheckRegular(path));
  const std::string next_path = path + ".next";
  // First, so that from here on no other process looks at the path.
  ASSIGN_OR_RETURN(UniqueFd fd, OpenLocked(next_path, O_RDWR | O_CREAT));
  const absl::Status removed = RemoveStale(path);
  if (!removed.ok()) {
    unlink(next_path.c_str());
    return removed;
  }
  return ReadyFile(path, std::move(fd));
}

absl::Status ReadyFile::Write(nlohmann::json ready) {
  if (path_.empty()) return absl::OkStatus();
  ready["pid"] = getpid();
  RETURN_IF_ERROR(CheckRegular(path_));
  if (!WriteAll(fd_, absl::StrCat(ready.dump(), "\n")) ||
      std::rename(next_path().c_str(), path_.c_str()) != 0) {
    return CannotBeWritten(path_);
  }
  return absl::OkStatus();
}

ReadyFile::~ReadyFile() {
  if (path_.empty()) return;
  for (const std::string& path : {path_, next_path()}) {
    if (IsAt(path, fd_)) unlink(path.c_str());
  }
}

}  // namespace crossmesh
