#include "worker/transport/sibling_reads.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr uint64_t kMark = 0x43524f53534d4553;

// Runs in the child, which may use nothing but system calls: returns what the parent learns.
int TryToRead(pid_t parent, const uint64_t* mark) {
  uint64_t found = 0;
  const iovec into{.iov_base = &found, .iov_len = sizeof(found)};
  const iovec from{.iov_base = const_cast<uint64_t*>(mark), .iov_len = sizeof(*mark)};
  const long bytes = syscall(SYS_process_vm_readv, parent, &into, 1L, &from, 1L, 0L);
  if (bytes < 0) return errno;
  return bytes == sizeof(found) && found == kMark ? 0 : EIO;
}

// Without fork(), which would run the handlers of every library, and without a signal at its end,
// which would meet those of the embedding process.
int TryInChild() {
  static const uint64_t mark = kMark;
  const pid_t parent = getpid();
  const long child = syscall(SYS_clone, 0L, nullptr, nullptr, nullptr, nullptr);
  if (child < 0) return errno;
  if (child == 0) {
    syscall(SYS_exit_group, TryToRead(parent, &mark));
    __builtin_unreachable();
  }
  int status = 0;
  while (waitpid(static_cast<pid_t>(child), &status, __WALL) < 0) {
    if (errno != EINTR) return errno;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;  // killed: by a filter
}

std::optional<int> ReadPtraceScope() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  if (!(file >> scope)) return std::nullopt;
  return scope;
}

bool UnderSeccompFilter() {
  std::ifstream file("/proc/thread-self/status");
  for (std::string key; file >> key;) {
    int mode = 0;
    if (key == "Seccomp:" && file >> mode) return mode == 2;
  }
  return false;
}

}  // namespace

SiblingReads ProbeSiblingReads() {
  return {.error = TryInChild(),
          .ptrace_scope = ReadPtraceScope(),
          .seccomp_filter = UnderSeccompFilter()};
}

absl::Status CheckAllowed(const SiblingReads& reads) {
  if (reads.error == 0) return absl::OkStatus();
  std::string text = absl::StrCat("the system does not let workers read each other's memory: ",
                                  absl::ErrnoToStatus(reads.error, "process_vm_readv").message());
  if (reads.ptrace_scope.value_or(0) > 0) {
    absl::StrAppend(&text, "; kernel.yama.ptrace_scope is ", *reads.ptrace_scope,
                    ": set it to 0, or give workers CAP_SYS_PTRACE");
  }
  if (reads.seccomp_filter) {
    absl::StrAppend(&text,
                    "; a seccomp filter is in force: allow process_vm_readv in the container's "
                    "profile, e.g. with --cap-add SYS_PTRACE");
  }
  return absl::PermissionDeniedError(text);
}

}  // namespace crossmesh
