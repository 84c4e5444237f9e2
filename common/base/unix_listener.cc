#include "common/base/unix_listener.h"

#include "common/base/status_macros.h"

#include <cerrno>
#include <cstring>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace crossmesh {
namespace {

absl::Status CannotListen(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on unix:", path, ": ", why));
}

absl::Status CannotListen(const std::string& path, int error) {
  return CannotListen(path, std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path \"", path, "\": expected 1 to ",
                                                   sizeof(address.sun_path) - 1, " bytes, found ",
                                                   path.size()));
  }
  path.copy(address.sun_path, path.size());
  return address;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Between the look at a file and what is done with it no other process of ours may do the same: a
// lock of the folder, which leaves no file behind. None where the folder cannot be read, which
// then only these moments do without. Others may lock the folder as well, so the wait has an end.
absl::StatusOr<UniqueFd> LockFolder(const std::string& path) {
  constexpr int kPauseMs = 5;
  constexpr int kTriesMax = 400;
  UniqueFd folder(open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return folder;
  for (int tries = 1; flock(folder.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK && errno != EINTR) return UniqueFd();
    if (tries == kTriesMax) {
      return CannotListen(path, absl::StrCat("another process has held the lock of ",
                                             FolderOf(path), " for ", kPauseMs * kTriesMax, " ms"));
    }
    poll(nullptr, 0, kPauseMs);
  }
  return folder;
}

absl::Status RemoveStaleSocket(const std::string& path, const sockaddr_un& address, int type) {
  struct stat found = {};
  // What else keeps it from being looked at keeps it from being bound, which says so.
  if (lstat(path.c_str(), &found) != 0) return absl::OkStatus();
  if (!S_ISSOCK(found.st_mode)) {
    return CannotListen(path, "expected a socket or no file there, found another file");
  }
  const UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return CannotListen(path, errno);
  const bool connected =
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  // Two errors come from servers that live: whose queue is full, and whose socket has another type.
  if (connected || errno == EAGAIN || errno == EPROTOTYPE) {
    return CannotListen(path, "another server listens there");
  }
  if (errno != ECONNREFUSED) {
    return CannotListen(path, absl::StrCat("found a socket that cannot be asked: ",
                                           std::strerror(errno)));  // NOLINT
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return CannotListen(path, errno);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UnixListener> UnixListener::Listen(const std::string& path, int type) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  ASSIGN_OR_RETURN(const UniqueFd lock, LockFolder(path));
  RETURN_IF_ERROR(RemoveStaleSocket(path, address, type));
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // The mode of the socket before bind is the one that the file is made with.
  if (!fd.valid() || fchmod(fd.get(), 0600) != 0) return CannotListen(path, errno);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return CannotListen(path, errno);
  }
  struct stat made = {};
  if (lstat(path.c_str(), &made) != 0) return CannotListen(path, errno);
  UnixListener listener(std::move(fd), path, {.device = made.st_dev, .inode = made.st_ino});
  if (listen(listener.fd(), SOMAXCONN) != 0) return CannotListen(path, errno);
  return listener;
}

void UnixListener::Close() {
  if (!fd_.valid()) return;
  {
    // Without the lock, if it cannot be had: the file of a process that ended must not stay.
    const absl::StatusOr<UniqueFd> lock = LockFolder(path_);
    struct stat found = {};
    if (lstat(path_.c_str(), &found) == 0 &&
        FileId{.device = found.st_dev, .inode = found.st_ino} == file_) {
      unlink(path_.c_str());
    }
  }
  // Last, since the open socket keeps its inode's number from being given to another file.
  fd_.Reset();
}

}  // namespace crossmesh
