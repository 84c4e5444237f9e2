#include "common/testing/child_process.h"

#include "common/base/child_exit.h"
#include "common/base/unique_fd.h"

#include <cerrno>
#include <csignal>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr int kCannotRun = 127;

// Between fork and exec, where only what is safe in a signal handler may be called.
[[noreturn]] void BecomeProgram(char* const* arguments, int log, pid_t parent) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kCannotRun);  // it died before prctl
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execv(arguments[0], arguments);
  ::_exit(kCannotRun);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const Options& options) {
  if (::access(options.program.c_str(), X_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot run ", options.program));
  }
  const UniqueFd log(
      ::open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", options.log_path));
  }
  std::vector<std::string> texts = {options.program};
  texts.insert(texts.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> arguments;
  for (std::string& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) BecomeProgram(arguments.data(), log.get(), parent);
  if (pid < 0) return absl::ErrnoToStatus(errno, "cannot start a process");
  return ChildProcess(pid);
}

ChildProcess::~ChildProcess() { Kill(); }

void ChildProcess::Terminate() const {
  if (pid_ != 0) ::kill(pid_, SIGTERM);
}

void ChildProcess::Kill() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  exit_text_ = AwaitChild(pid_);
  pid_ = 0;
}

std::optional<std::string> ChildProcess::ExitText() {
  if (pid_ != 0) {
    exit_text_ = ReapChild(pid_);
    if (exit_text_.has_value()) pid_ = 0;
  }
  return exit_text_;
}

}  // namespace crossmesh
