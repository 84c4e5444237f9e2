#include "client/cli/run_interrupts.h"

#include "common/base/status_macros.h"

#include <cstdlib>
#include <utility>

#include <signal.h>

namespace crossmesh {

constexpr int kInterruptsServed = 2;

absl::StatusOr<std::unique_ptr<RunInterrupts>> RunInterrupts::Handle(Stop stop) {
  ASSIGN_OR_RETURN(StopSignals signals, StopSignals::Block({SIGINT}));
  ASSIGN_OR_RETURN(EventFd done, EventFd::Create());
  std::unique_ptr<RunInterrupts> interrupts(
      new RunInterrupts(std::move(signals), std::move(done), std::move(stop)));
  RunInterrupts& waiting = *interrupts;
  waiting.thread_ = Thread("interrupts", [&waiting] { waiting.Wait(); });
  return interrupts;
}

RunInterrupts::~RunInterrupts() {
  done_.Signal();
  thread_.Join();
}

void RunInterrupts::Found(absl::string_view run) {
  {
    MutexLock lock(mutex_);
    run_ = std::string(run);
  }
  Serve();
}

void RunInterrupts::Wait() {
  while (const int signal = signals_.Wait(&done_)) {
    {
      MutexLock lock(mutex_);
      // Other threads are in the middle of their work: nothing of it is to be torn down.
      if (++interrupts_ > kInterruptsServed) std::_Exit(ExitCodeOfSignal(signal));
    }
    Serve();
  }
}

void RunInterrupts::Serve() {
  std::string run;
  bool now = false;
  {
    MutexLock lock(mutex_);
    if (run_.empty() || served_ == interrupts_) return;
    served_ = interrupts_;
    run = run_;
    now = interrupts_ >= kInterruptsServed;
  }
  stop_(run, now);
}

}  // namespace crossmesh
