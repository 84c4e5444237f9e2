#include "common/base/unique_fd.h"

#include <unistd.h>

namespace crossmesh {

void UniqueFd::Reset(int fd) {
  const int old = std::exchange(fd_, fd);
  // After close(2) the number is free, even if it returned an error; to repeat it could close
  // another thread's file.
  if (old >= 0 && old != fd) close(old);
}

}  // namespace crossmesh
