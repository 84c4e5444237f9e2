#pragma once

#include "common/base/unique_fd.h"

#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

// A file that says that a daemon serves, and where. It is one process's as long as that lives, by a
// lock that the system drops at its end, however it ends. Removed with this object, unless it is
// another's by then. Thread-compatible.
class ReadyFile {
 public:
  // Makes the path this process's, before it serves; removes what a process that has ended has left
  // there. An empty path claims nothing. FailedPrecondition: a process that lives has it, or
  // something else than a regular file is there. Unavailable: the file cannot be made.
  static absl::StatusOr<ReadyFile> Claim(const std::string& path);

  // Adds the process's id to `ready`, and writes it, whole or not at all. Once. Unavailable: the
  // file cannot be written.
  absl::Status Write(nlohmann::json ready);

  ReadyFile(ReadyFile&& other) noexcept
      : path_(std::exchange(other.path_, "")), fd_(std::move(other.fd_)) {}
  ReadyFile& operator=(ReadyFile&&) = delete;
  ~ReadyFile();

 private:
  ReadyFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  // The file under which it is claimed and written, before it has its name.
  std::string next_path() const { return path_ + ".next"; }

  std::string path_;  // empty: nothing to remove
  UniqueFd fd_;       // has the lock
};

}  // namespace crossmesh
