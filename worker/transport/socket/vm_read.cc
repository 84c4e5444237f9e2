#include "worker/transport/socket/vm_read.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/uio.h>

namespace crossmesh {
namespace {

constexpr char kPidNamespacePath[] = "/proc/self/ns/pid";

}  // namespace

absl::StatusOr<size_t> ReadMemory(pid_t pid, PieceCursor& from, PieceCursor& into,
                                  size_t bytes_max) {
  std::array<iovec, IOV_MAX> remote;
  std::array<iovec, IOV_MAX> local;
  // The system copies until one of the two lists ends.
  const PieceCursor::Listed remote_listed = from.List(remote, bytes_max);
  const PieceCursor::Listed local_listed = into.List(local, bytes_max);
  const ssize_t copied = process_vm_readv(pid, local.data(), local_listed.pieces, remote.data(),
                                          remote_listed.pieces, 0);
  if (copied <= 0) {
    return absl::UnavailableError(
        absl::StrCat("reading the memory of process ", pid, ": ", std::strerror(errno)));
  }
  from.Advance(static_cast<size_t>(copied));
  into.Advance(static_cast<size_t>(copied));
  return static_cast<size_t>(copied);
}

absl::StatusOr<uint64_t> ReadPidNamespace() {
  struct stat found;
  if (stat(kPidNamespacePath, &found) != 0) {
    return absl::InternalError(absl::StrCat(kPidNamespacePath, ": ", std::strerror(errno)));
  }
  return found.st_ino;
}

}  // namespace crossmesh
