#include "common/base/process_end.h"

#include <cerrno>
#include <cstring>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace crossmesh {

absl::StatusOr<UniqueFd> OpenProcess(pid_t process) {
  // The C library's own function cannot be linked from C++ (glibc 2.36).
  UniqueFd descriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (descriptor.valid()) return descriptor;
  if (errno == EPERM || errno == ENOSYS) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open process ", process,
                     ": expected the system call pidfd_open, of Linux 5.3 or later and a seccomp "
                     "profile that knows it (Docker 20.10 or later), found: ",
                     std::strerror(errno)));
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot open process ", process));
}

bool AwaitEnd(const UniqueFd& process, absl::Duration timeout) {
  const timespec limit = absl::ToTimespec(timeout);
  pollfd end = {.fd = process.get(), .events = POLLIN, .revents = 0};
  int ended = -1;
  do {
    ended = ppoll(&end, 1, &limit, nullptr);
  } while (ended < 0 && errno == EINTR);
  return ended == 1;
}

}  // namespace crossmesh
