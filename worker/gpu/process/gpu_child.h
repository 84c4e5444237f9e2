#pragma once

#include "common/base/unique_fd.h"
#include "common/event_loop/event_source.h"

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <sys/types.h>

namespace crossmesh {

// A program that runs as a child of this process. Confined to its loop.
class GpuChild final : public EventSource {
 public:
  struct Options {
    std::string program;  // path
    std::vector<std::string> arguments;
    std::vector<std::string> environment;   // "NAME=value"; all that it gets
    int standard_output = UniqueFd::kNone;  // a descriptor; none: that of this process
    int kill_signal = SIGKILL;  // for tests: 0 does nothing to it, as if it hung in the system
    absl::Duration kill_limit = absl::Seconds(5);  // for the system to end it, once it is killed
  };
  // Told how it ended, "exit status 70" or "signal 9", once, from inside Progress.
  using OnExit = absl::AnyInvocable<void(const std::string& how)>;

  // Starts it with no signal blocked, and `socket` as kGpuSocketDescriptor, its only one but the
  // standard three. Where the program asks for that (PR_SET_PDEATHSIG), it ends with the thread
  // that calls this. Errors of the system, with the program's path.
  static absl::StatusOr<std::unique_ptr<GpuChild>> Start(const Options& options, UniqueFd socket,
                                                         OnExit on_exit);
  // As Kill and AwaitExit, with the limit for that; logs that it goes on when it does.
  ~GpuChild() override;
  GpuChild(const GpuChild&) = delete;
  GpuChild& operator=(const GpuChild&) = delete;

  pid_t pid() const { return pid_; }
  // Nothing happens when it has ended.
  void Kill();
  // Waits for its end at most so long; OnExit is not told. Whether it has ended.
  bool AwaitExit(absl::Duration timeout);
  // It does not end, since it hangs in the system: from now on nothing waits for it.
  void GiveUp();

  int Progress() override;
  int event_fd() const override { return process_.get(); }

 private:
  GpuChild(pid_t pid, const Options& options, OnExit on_exit);

  const pid_t pid_;
  const int kill_signal_;
  const absl::Duration kill_limit_;
  UniqueFd process_;  // readable when it has ended
  OnExit on_exit_;
  bool has_ended_ = false;
};

}  // namespace crossmesh
