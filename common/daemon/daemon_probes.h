#pragma once

#include "common/base/mutex.h"
#include "common/metrics/probes.h"

#include <string>

namespace crossmesh {

class Watchdog;

// What a daemon answers to those who probe it: whether it has to be started again, whether work may
// be sent to it, whether it has begun to serve. It is never dead for the sake of another process:
// starting it again would not help. Thread-safe.
class DaemonProbes {
 public:
  DaemonProbes() = default;
  DaemonProbes(const DaemonProbes&) = delete;
  DaemonProbes& operator=(const DaemonProbes&) = delete;

  // Null: none any more. It must live as long.
  void SetWatchdog(const Watchdog* watchdog);
  // From now on it serves, until it does not for this reason.
  void SetServing();
  void SetNotServing(std::string why);

  ProbeAnswer Live() const;
  ProbeAnswer Ready() const;
  ProbeAnswer Started() const;
  // The three, as long as this lives.
  Probes All() const;

 private:
  mutable Mutex mutex_;
  const Watchdog* watchdog_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool has_started_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_not_serving_ ABSL_GUARDED_BY(mutex_) = "starting";
};

}  // namespace crossmesh
