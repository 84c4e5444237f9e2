#include "worker/transport/socket/process_file.h"

#include "common/base/status_macros.h"

#include <cerrno>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

namespace crossmesh {
namespace {

absl::Status Problem(absl::string_view path, int error) {
  return absl::UnavailableError(absl::ErrnoToStatus(error, path).message());
}

std::string PathOf(const ProcessFile& file) {
  return absl::StrCat("/proc/", file.pid, "/fd/", file.fd);
}

}  // namespace

absl::StatusOr<UniqueFd> OpenFileOf(const ProcessFile& file) {
  const std::string path = PathOf(file);
  // It may be anything: nothing that blocks or takes control.
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return Problem(path, errno);
  return fd;
}

absl::StatusOr<TransportNonce> MakeNonce() {
  TransportNonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    return absl::InternalError("the system has no random bytes");
  }
  return nonce;
}

absl::StatusOr<UniqueFd> MakeNonceFile(const TransportNonce& nonce) {
  UniqueFd fd(memfd_create("crossmesh:nonce", MFD_CLOEXEC));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "memfd_create");
  if (write(fd.get(), nonce.data(), nonce.size()) != static_cast<ssize_t>(nonce.size())) {
    return absl::ErrnoToStatus(errno, "writing a nonce");
  }
  return fd;
}

absl::Status CheckNonceFile(const ProcessFile& file, const TransportNonce& nonce) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenFileOf(file));
  TransportNonce found;
  const ssize_t bytes = pread(fd.get(), found.data(), found.size(), 0);
  if (bytes < 0) return Problem(PathOf(file), errno);
  if (bytes == static_cast<ssize_t>(nonce.size()) && found == nonce) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(PathOf(file), ": expected the nonce of the other side, found something else"));
}

}  // namespace crossmesh
