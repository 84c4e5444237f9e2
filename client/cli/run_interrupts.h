#pragma once

#include "common/base/event_fd.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/daemon/stop_signals.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// While it lives, the first SIGINT asks for the end of a run after its iteration, the second for
// one at once; the third ends this process only. Must be made before any other thread.
// Thread-safe.
class RunInterrupts {
 public:
  // `stop` may take its time; it is called by a thread of its own, or by Found. Never twice for
  // the same.
  using Stop = std::function<void(const std::string& run, bool now)>;
  static absl::StatusOr<std::unique_ptr<RunInterrupts>> Handle(Stop stop);
  ~RunInterrupts();

  // The run is known. An interrupt that came before is served now. May be called again, as often as
  // is convenient.
  void Found(absl::string_view run);

 private:
  RunInterrupts(StopSignals signals, EventFd done, Stop stop)
      : signals_(std::move(signals)), done_(std::move(done)), stop_(std::move(stop)) {}
  void Wait();
  // Asks for what was not asked for yet.
  void Serve();

  const StopSignals signals_;
  EventFd done_;
  const Stop stop_;
  Thread thread_;

  Mutex mutex_;
  std::string run_ ABSL_GUARDED_BY(mutex_);  // empty: not known
  int interrupts_ ABSL_GUARDED_BY(mutex_) = 0;
  int served_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
