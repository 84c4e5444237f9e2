#include "client/cli/interrupts.h"

#include "common/base/status_macros.h"

#include <cstdlib>
#include <utility>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<Interrupts>> Interrupts::Handle(std::function<void()> clean_up) {
  ASSIGN_OR_RETURN(StopSignals signals, StopSignals::Block({SIGINT, SIGTERM, SIGHUP}));
  ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  std::unique_ptr<Interrupts> interrupts(new Interrupts(std::move(signals), std::move(stop)));
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
  const int signal = signals_.Wait(&stop_);
  if (signal == 0) return;
  clean_up();
  // Other threads are in the middle of their work: nothing of it is to be torn down.
  std::_Exit(ExitCodeOfSignal(signal));
}

}  // namespace crossmesh
