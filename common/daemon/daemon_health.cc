#include "common/daemon/daemon_health.h"

#include "common/base/log.h"
#include "common/daemon/service_manager.h"
#include "common/daemon/stack_dump.h"

#include <csignal>
#include <cstdlib>
#include <string>

namespace crossmesh {
namespace {

void TellAlive() { TellServiceManager("WATCHDOG=1").IgnoreError(); }

void EndSilent(const std::string& what) {
  LogError("thread_silent", {{"reason", what}});
  AbortWithStacks();
}

Watchdog::Options OptionsOfWatchdog() {
  Watchdog::Options options;
  if (std::getenv("WATCHDOG_USEC") != nullptr) options.on_alive = &TellAlive;
  options.on_silent = &EndSilent;
  return options;
}

// Signals are for the thread that waits for them: this one begins before that has blocked them.
void StartWithoutSignals(Watchdog& watchdog) {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&blocked, signal);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  watchdog.Start();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

DaemonHealth::DaemonHealth() : watchdog(OptionsOfWatchdog()) {
  probes.SetWatchdog(&watchdog);
  StartWithoutSignals(watchdog);
}

DaemonHealth::~DaemonHealth() {
  watchdog.Stop();
  probes.SetWatchdog(nullptr);
}

}  // namespace crossmesh
