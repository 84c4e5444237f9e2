#pragma once

#include "common/base/clock.h"
#include "common/base/event_fd.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "worker/probe/probe_listener.h"
#include "worker/probe/probe_sender.h"

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// The probes of a worker: each runs on a thread of its own, for as long as its time allows.
// Thread-safe.
class ProbeTable {
 public:
  struct Options {
    std::vector<std::string> interfaces;  // that may be probed
    size_t probes_max = 64;               // at once
  };

  // `clock` runs by itself and outlives the table. ResourceExhausted: no file descriptors.
  static absl::StatusOr<std::unique_ptr<ProbeTable>> Create(Options options, const Clock& clock);
  // As Stop.
  ~ProbeTable() { Stop(); }

  // Listens for one probe of `time`. InvalidArgument: an interface or a time out of what is
  // allowed; Unavailable: see ProbeListener::Open; ResourceExhausted: too many probes run.
  absl::StatusOr<IpEndpoint> Listen(const std::string& interface, const ProbeToken& token,
                                    absl::Duration time);

  // Sends a probe. `done` is called once, by this thread or the probe's, with what SendProbe finds
  // or an error as above, for the bytes too.
  using Done = absl::AnyInvocable<void(absl::StatusOr<ProbeFigures>)>;
  void Send(ProbeOrder order, Done done);

  // Breaks off what runs, and returns when it has ended; Unavailable from now on. Repeatable.
  void Stop();

 private:
  struct Probe {
    Thread thread;
    bool over = false;  // guarded by mutex_
  };

  ProbeTable(Options options, const Clock& clock, EventFd stop)
      : options_(std::move(options)), clock_(clock), stop_(std::move(stop)) {}

  absl::Status Check(const std::string& interface, absl::Duration time) const;
  // How long a probe of `time` may take, from now.
  ProbePatience PatienceFor(absl::Duration time) const;
  absl::Status Start(const std::string& name, absl::AnyInvocable<void()> body);

  const Options options_;
  const Clock& clock_;
  EventFd stop_;

  Mutex mutex_;
  std::list<Probe> probes_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
