#include "common/daemon/stop_signals.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"

#include <array>
#include <cerrno>
#include <cstdlib>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace crossmesh {

absl::StatusOr<StopSignals> StopSignals::Block(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  UniqueFd fd;
  if (const int error = pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    return absl::ErrnoToStatus(error, "cannot block signals");
  }
  fd.Reset(signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "cannot wait for signals");
  return StopSignals(std::move(fd));
}

int StopSignals::Wait(const EventFd* done) const {
  // A descriptor below 0 is one that poll leaves out.
  std::array<pollfd, 2> fds = {pollfd{.fd = fd_.get(), .events = POLLIN},
                               pollfd{.fd = done == nullptr ? -1 : done->fd(), .events = POLLIN}};
  while (poll(fds.data(), fds.size(), -1) < 0) {
  }
  if (fds[0].revents == 0) return 0;
  signalfd_siginfo info = {};
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return SIGTERM;
  return static_cast<int>(info.ssi_signo);
}

absl::Status StopUnlessInsisted(const StopSignals& signals, absl::FunctionRef<void()> stop) {
  ASSIGN_OR_RETURN(EventFd done, EventFd::Create());
  const Thread stopping("stop", [&done, stop] {
    stop();
    done.Signal();
  });
  int signal = signals.Wait(&done);
  while (signal == SIGHUP) signal = signals.Wait(&done);
  if (signal != 0) {
    LogWarning("daemon_stops_at_once", {{"signal", signal}});
    // Other threads are in the middle of their work: nothing of it is to be torn down.
    std::_Exit(ExitCodeOfSignal(signal));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
