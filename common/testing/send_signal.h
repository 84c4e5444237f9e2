#pragma once

#include "common/base/check.h"

#include <cerrno>
#include <csignal>

#include <sys/types.h>

namespace crossmesh {

// To one process. A process that is not there must not be asked by its number: -1 and 0 are all
// processes, and all of this group.
inline void SendSignal(pid_t process, int signal) {
  CHECK_GT(process, 0) << "for signal " << signal;
  CHECK_EQ(kill(process, signal), 0) << "errno " << errno;
}

}  // namespace crossmesh
