#include "common/daemon/descriptor_limit.h"

#include <cerrno>

#include <sys/resource.h>

namespace crossmesh {

absl::Status RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::ErrnoToStatus(errno, "getrlimit");
  if (limit.rlim_cur == limit.rlim_max) return absl::OkStatus();
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "cannot raise the limit of descriptors");
}

}  // namespace crossmesh
