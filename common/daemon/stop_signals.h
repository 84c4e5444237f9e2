#pragma once

#include "common/base/event_fd.h"
#include "common/base/unique_fd.h"

#include <initializer_list>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <signal.h>

namespace crossmesh {

// The signals that ask a process to stop, or to read its configuration again (SIGHUP), to be waited
// for. Thread-safe.
class StopSignals {
 public:
  // To be called before there are other threads: the signals are blocked in this one and in all
  // that are started from here on, so that only Wait has them. ResourceExhausted: there are no
  // descriptors left.
  static absl::StatusOr<StopSignals> Block(std::initializer_list<int> signals = {SIGTERM, SIGINT,
                                                                                 SIGHUP});

  // The signal that came; 0 when `done`, which may be null, came first.
  int Wait(const EventFd* done = nullptr) const;

 private:
  explicit StopSignals(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

// What a shell reports of a process that a signal ended.
inline int ExitCodeOfSignal(int signal) { return 128 + signal; }

// Calls `stop`, which may take its time, on a thread of its own and returns when it has. Another
// signal meanwhile, but SIGHUP, ends the process at once. ResourceExhausted: there are no
// descriptors left.
absl::Status StopUnlessInsisted(const StopSignals& signals, absl::FunctionRef<void()> stop);

}  // namespace crossmesh
