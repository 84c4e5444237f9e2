#include "client/cli/interrupt_notice.h"

#include "common/base/status_macros.h"

#include <cstdlib>
#include <iostream>

#include <signal.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<InterruptNotice>> InterruptNotice::Handle(std::string notice) {
  ASSIGN_OR_RETURN(StopSignals signals, StopSignals::Block({SIGINT}));
  ASSIGN_OR_RETURN(EventFd done, EventFd::Create());
  std::unique_ptr<InterruptNotice> handler(
      new InterruptNotice(std::move(signals), std::move(done), std::move(notice)));
  InterruptNotice& waiting = *handler;
  waiting.thread_ = Thread("interrupts", [&waiting] { waiting.Wait(); });
  return handler;
}

InterruptNotice::~InterruptNotice() {
  done_.Signal();
  thread_.Join();
}

void InterruptNotice::Set(absl::string_view notice) {
  const MutexLock lock(mutex_);
  notice_ = std::string(notice);
}

void InterruptNotice::Wait() {
  const int signal = signals_.Wait(&done_);
  if (signal == 0) return;
  std::string notice;
  {
    const MutexLock lock(mutex_);
    notice = notice_;
  }
  std::cerr << "\ncrossmesh: interrupted; " << notice << std::endl;
  // Other threads are in the middle of their work: nothing of it is to be torn down.
  std::_Exit(ExitCodeOfSignal(signal));
}

}  // namespace crossmesh
