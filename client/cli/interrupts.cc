#include "client/cli/interrupts.h"

#include "common/base/status_macros.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<Interrupts>> Interrupts::Handle(std::function<void()> clean_up) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  // Threads that are made from here on inherit the mask, so that the descriptor gets them all.
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "cannot wait for signals");
  ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  std::unique_ptr<Interrupts> interrupts(new Interrupts(std::move(fd), std::move(stop)));
  Interrupts& waiting = *interrupts;
  waiting.thread_ =
      Thread("interrupts", [&waiting, clean_up = std::move(clean_up)] { waiting.Wait(clean_up); });
  return interrupts;
}

Interrupts::~Interrupts() {
  stop_.Signal();
  thread_.Join();
}

void Interrupts::Wait(const std::function<void()>& clean_up) {
  std::array<pollfd, 2> waiting = {pollfd{.fd = signals_.get(), .events = POLLIN},
                                   pollfd{.fd = stop_.fd(), .events = POLLIN}};
  while (::poll(waiting.data(), waiting.size(), -1) < 0 && errno == EINTR) {
  }
  if (waiting[0].revents == 0) return;
  signalfd_siginfo info = {};
  const bool known = ::read(signals_.get(), &info, sizeof(info)) == sizeof(info);
  clean_up();
  // Other threads are in the middle of their work: nothing of it is to be torn down.
  std::_Exit(128 + (known ? static_cast<int>(info.ssi_signo) : SIGTERM));
}

}  // namespace crossmesh
