#pragma once

#include "common/base/unique_fd.h"

#include <string>
#include <utility>

#include <absl/status/statusor.h>
#include <sys/types.h>

namespace crossmesh {

// A Unix socket that listens at a path, for its own user only from the first moment. Never takes a
// path from a server that lives, nor removes it once it is another's. Thread-compatible.
class UnixListener {
 public:
  // `type`: SOCK_STREAM or SOCK_SEQPACKET. A socket file that nothing listens on any more makes
  // way; it does so for one of several processes that start at once. The descriptor does not block.
  // InvalidArgument: the path is empty or too long. FailedPrecondition, with the path and the
  // reason: a server listens there, another file is there, or the system refuses.
  static absl::StatusOr<UnixListener> Listen(const std::string& path, int type);

  UnixListener(UnixListener&& other) noexcept = default;
  UnixListener& operator=(UnixListener&& other) noexcept {
    if (this == &other) return *this;
    Close();
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
    file_ = other.file_;
    return *this;
  }
  // As Close.
  ~UnixListener() { Close(); }

  int fd() const { return fd_.get(); }

  // Listens no longer; removes the file unless it is another's by now. Repeatable.
  void Close();

 private:
  // A file that is there, or was: no other has both numbers while a socket holds on to it.
  struct FileId {
    friend bool operator==(const FileId&, const FileId&) = default;
    dev_t device = 0;
    ino_t inode = 0;
  };

  UnixListener(UniqueFd fd, std::string path, FileId file)
      : fd_(std::move(fd)), path_(std::move(path)), file_(file) {}

  UniqueFd fd_;
  std::string path_;
  FileId file_;
};

}  // namespace crossmesh
