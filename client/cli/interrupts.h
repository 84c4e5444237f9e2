#pragma once

#include "common/base/event_fd.h"
#include "common/base/thread.h"
#include "common/daemon/stop_signals.h"

#include <functional>
#include <memory>
#include <utility>

#include <absl/status/statusor.h>

namespace crossmesh {

// While it lives, SIGINT, SIGTERM and SIGHUP clean up and end the process. To be made before any
// other thread. Thread-compatible.
class Interrupts {
 public:
  // `clean_up` is called once, on a thread of its own, beside whatever the process does.
  static absl::StatusOr<std::unique_ptr<Interrupts>> Handle(std::function<void()> clean_up);
  ~Interrupts();

 private:
  Interrupts(StopSignals signals, EventFd stop)
      : signals_(std::move(signals)), stop_(std::move(stop)) {}
  void Wait(const std::function<void()>& clean_up);

  StopSignals signals_;
  EventFd stop_;
  Thread thread_;
};

}  // namespace crossmesh
