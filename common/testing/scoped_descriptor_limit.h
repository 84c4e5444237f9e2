#pragma once

#include "common/base/check.h"
#include "common/base/unique_fd.h"

#include <fcntl.h>
#include <sys/resource.h>

namespace crossmesh {

// The soft limit of this process's descriptors, until this goes.
class ScopedDescriptorLimit {
 public:
  explicit ScopedDescriptorLimit(rlim_t limit) {
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit changed = {.rlim_cur = limit, .rlim_max = before_.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &changed), 0);
  }
  ~ScopedDescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  ScopedDescriptorLimit(const ScopedDescriptorLimit&) = delete;
  ScopedDescriptorLimit& operator=(const ScopedDescriptorLimit&) = delete;

 private:
  rlimit before_;
};

// What the next descriptor will be.
inline rlim_t LowestFreeDescriptor() {
  return static_cast<rlim_t>(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)).get());
}

}  // namespace crossmesh
