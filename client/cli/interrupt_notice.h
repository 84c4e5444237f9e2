#pragma once

#include "common/base/event_fd.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/daemon/stop_signals.h"

#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// While it lives, SIGINT ends this process after saying, on standard error, what goes on without
// it. Must be made before any other thread. Thread-safe.
class InterruptNotice {
 public:
  // ResourceExhausted: there are no descriptors left.
  static absl::StatusOr<std::unique_ptr<InterruptNotice>> Handle(std::string notice);
  ~InterruptNotice();

  // What is said from here on.
  void Set(absl::string_view notice);

 private:
  InterruptNotice(StopSignals signals, EventFd done, std::string notice)
      : signals_(std::move(signals)), done_(std::move(done)), notice_(std::move(notice)) {}
  void Wait();

  const StopSignals signals_;
  EventFd done_;
  Thread thread_;

  Mutex mutex_;
  std::string notice_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
