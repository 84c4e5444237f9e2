#include "client/cli/testing/program_run.h"

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/testing/paths.h"
#include "common/testing/temporary_folder.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {

namespace {

constexpr int kCannotRun = 127;

absl::Duration Now() { return RealClock().Monotonic(); }

// A shell that runs a command, as the leader of a group of processes: what it starts ends with it.
class ShellGroup {
 public:
  explicit ShellGroup(const std::string& command) {
    std::array<int, 2> ends = {};
    CHECK_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    output_.Reset(ends[0]);
    const UniqueFd input(ends[1]);
    leader_ = fork();
    CHECK_GE(leader_, 0);
    if (leader_ == 0) Become(command.c_str(), input.get());
    // As the child does itself, which may not have come so far when it is to be killed.
    setpgid(leader_, leader_);
  }
  ShellGroup(const ShellGroup&) = delete;
  ShellGroup& operator=(const ShellGroup&) = delete;
  ~ShellGroup() { Kill(); }

  // Adds what is printed to `out`. False when, after so long, the shell has not ended or something
  // that it started could still print.
  bool AwaitEnd(absl::Duration limit, std::string& out) {
    const absl::Duration deadline = Now() + limit;
    bool is_open = true;
    while (Now() < deadline) {
      if (is_open) {
        is_open = ReadSome(deadline - Now(), out);
      } else if (Reap(WNOHANG)) {
        return true;
      } else {
        poll(nullptr, 0, 1);
      }
    }
    return false;
  }
  void Kill() {
    if (leader_ == 0) return;
    kill(-leader_, SIGKILL);
    while (!Reap(0)) {
    }
  }
  // -1 when it was killed.
  int exit_status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1; }

 private:
  // Between fork and exec, where only what is safe in a signal handler may be called.
  [[noreturn]] static void Become(const char* command, int output) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(output, STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
    _exit(kCannotRun);
  }

  // False when no process has the pipe's other end any more.
  bool ReadSome(absl::Duration patience, std::string& out) {
    pollfd waiting = {.fd = output_.get(), .events = POLLIN};
    const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(patience)) + 1;
    if (poll(&waiting, 1, milliseconds) <= 0) return true;
    std::array<char, 4096> block;
    const ssize_t size = read(output_.get(), block.data(), block.size());
    if (size <= 0) return false;
    out.append(block.data(), static_cast<size_t>(size));
    return true;
  }

  bool Reap(int options) {
    if (waitpid(leader_, &status_, options) != leader_) return false;
    leader_ = 0;
    return true;
  }

  UniqueFd output_;
  pid_t leader_ = 0;  // 0: has ended
  int status_ = 0;
};

}  // namespace

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

ProgramResult RunShell(const std::string& command, absl::Duration limit) {
  const TemporaryFolder folder;
  const std::string error_path = folder.PathOf("errors");
  ShellGroup shell(absl::StrCat("cd '", SourcePath(""),
                                "' && unset CROSSMESH_CONTROLLER && export XDG_CONFIG_HOME='",
                                folder.path(), "' && CROSSMESH='", ProgramPath("crossmesh"),
                                "' && { ", command, "\n} 2>'", error_path, "' </dev/null"));
  ProgramResult result;
  const bool ended = shell.AwaitEnd(limit, result.out);
  shell.Kill();
  result.exit_status = shell.exit_status();
  result.error = ReadAll(error_path);
  EXPECT_TRUE(ended) << "killed, since it had not ended after " << limit << ": " << command
                     << "\nwhat it printed so far: " << result.out
                     << "\nand to standard error: " << result.error;
  return result;
}

ProgramResult Crossmesh(const std::string& arguments) {
  return RunShell(absl::StrCat("\"$CROSSMESH\" ", arguments));
}

nlohmann::json DocumentOf(const std::string& arguments) {
  const ProgramResult result = Crossmesh(arguments + " --json");
  EXPECT_EQ(result.exit_status, 0) << arguments << ": " << result.error;
  return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

std::string ErrorOf(const std::string& arguments) {
  const ProgramResult result = Crossmesh(arguments);
  EXPECT_NE(result.exit_status, 0) << arguments;
  EXPECT_EQ(result.out, "") << arguments;
  return result.error;
}

void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = SourcePath("client/cli/testdata/" + name);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  EXPECT_EQ(text, ReadAll(path)) << "differs from " << path;
}

}  // namespace crossmesh
