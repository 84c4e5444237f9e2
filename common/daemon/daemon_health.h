#pragma once

#include "common/daemon/daemon_metrics.h"
#include "common/daemon/daemon_probes.h"
#include "common/daemon/watchdog.h"

namespace crossmesh {

// How a daemon does, for those who watch it from outside. What it is made of says what is to be
// watched; where a thread of that hangs, the process ends by SIGABRT, with the stacks of all its
// threads in its log, and a service manager starts it again. A service manager that has set
// WATCHDOG_USEC is told as long as all is alive, so that it ends what even this does not. One in a
// process. Thread-safe.
class DaemonHealth {
 public:
  DaemonHealth();
  ~DaemonHealth();

  Watchdog watchdog;
  DaemonProbes probes;
  DaemonMetrics metrics;
};

}  // namespace crossmesh
