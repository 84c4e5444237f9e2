#include "common/base/child_exit.h"

#include <cerrno>

#include <absl/strings/str_cat.h>
#include <sys/wait.h>

namespace crossmesh {
namespace {

std::optional<std::string> Reap(pid_t child, int flags) {
  int status = 0;
  pid_t ended = -1;
  do {
    ended = waitpid(child, &status, flags);
  } while (ended < 0 && errno == EINTR);
  if (ended != child) return std::nullopt;
  if (WIFSIGNALED(status)) return absl::StrCat("signal ", WTERMSIG(status));
  return absl::StrCat("exit status ", WEXITSTATUS(status));
}

}  // namespace

std::optional<std::string> ReapChild(pid_t child) { return Reap(child, WNOHANG); }

std::optional<std::string> AwaitChild(pid_t child) { return Reap(child, /*flags=*/0); }

}  // namespace crossmesh
