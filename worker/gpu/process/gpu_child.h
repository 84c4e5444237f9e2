#pragma once

#include "common/base/unique_fd.h"
#include "common/event_loop/event_source.h"

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
    std::vector<std::string> environment;  // "NAME=value", beside that of this process
  };
  // Told how it ended, "exit status 70" or "signal 9", once, from inside Progress.
  using OnExit = absl::AnyInvocable<void(const std::string& how)>;

  // Starts it with no signal blocked, and `socket` as kGpuSocketDescriptor, its only one but the
  // standard three. Where the program asks for that (PR_SET_PDEATHSIG), it ends with the thread
  // that calls this. Errors of the system, with the program's path.
  static absl::StatusOr<std::unique_ptr<GpuChild>> Start(const Options& options, UniqueFd socket,
                                                         OnExit on_exit);
  // Kills it, unless it has ended, and waits for that.
  ~GpuChild() override;
  GpuChild(const GpuChild&) = delete;
  GpuChild& operator=(const GpuChild&) = delete;

  pid_t pid() const { return pid_; }
  // Nothing happens when it has ended.
  void Kill();
  // Waits for its end at most so long; OnExit is not told.
  void AwaitExit(absl::Duration timeout);

  int Progress() override;
  int event_fd() const override { return process_.get(); }

 private:
  GpuChild(pid_t pid, OnExit on_exit) : pid_(pid), on_exit_(std::move(on_exit)) {}

  const pid_t pid_;
  UniqueFd process_;  // readable when it has ended
  OnExit on_exit_;
  bool has_ended_ = false;
};

}  // namespace crossmesh
