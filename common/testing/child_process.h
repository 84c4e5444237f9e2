#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <sys/types.h>

namespace crossmesh {

// A program that runs as a child, and ends with this process at the latest. Move-only;
// thread-compatible.
class ChildProcess {
 public:
  struct Options {
    std::string program;  // path
    std::vector<std::string> arguments;
    std::string log_path;  // for its standard output and error
  };
  // Starts it, with no signal blocked. The thread that calls this must live as long as the child
  // is to live.
  static absl::StatusOr<ChildProcess> Start(const Options& options);

  ChildProcess(ChildProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), exit_text_(std::move(other.exit_text_)) {}
  ChildProcess& operator=(ChildProcess&& other) = delete;
  // Kills what still runs.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Asks it to end.
  void Terminate() const;
  // Kills it and waits. Repeatable.
  void Kill();
  // How it ended, e.g. "exit status 70" or "signal 9"; nothing while it runs.
  std::optional<std::string> ExitText();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = 0;  // 0: has ended
  std::optional<std::string> exit_text_;
};

}  // namespace crossmesh
