#pragma once

#include "common/base/check.h"

#include <cerrno>
#include <csignal>

#include <sys/types.h>
#include <sys/wait.h>

namespace crossmesh {

// To one process. A process that is not there must not be asked by its number: -1 and 0 are all
// processes, and all of this group.
inline void SendSignal(pid_t process, int signal) {
  CHECK_GT(process, 0) << "for signal " << signal;
  CHECK_EQ(kill(process, signal), 0) << "errno " << errno;
}

// SIGSTOP to a child of this process. Returns when it has stopped: its threads go on until the
// first of them has run to see the signal.
inline void StopChild(pid_t process) {
  SendSignal(process, SIGSTOP);
  siginfo_t info;
  CHECK_EQ(waitid(P_PID, static_cast<id_t>(process), &info, WSTOPPED | WEXITED | WNOWAIT), 0)
      << "errno " << errno;
}

}  // namespace crossmesh
