#pragma once

#include "common/base/check.h"
#include "common/base/unique_fd.h"

#include <cstdint>
#include <fstream>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace crossmesh {

// The soft limit of this process on a resource, such as RLIMIT_NOFILE, until this goes.
class ScopedResourceLimit {
 public:
  using Resource = decltype(RLIMIT_NOFILE);

  ScopedResourceLimit(Resource resource, rlim_t limit) : resource_(resource) {
    CHECK_EQ(getrlimit(resource, &before_), 0);
    const rlimit changed = {.rlim_cur = limit, .rlim_max = before_.rlim_max};
    CHECK_EQ(setrlimit(resource, &changed), 0);
  }
  ~ScopedResourceLimit() { setrlimit(resource_, &before_); }
  ScopedResourceLimit(const ScopedResourceLimit&) = delete;
  ScopedResourceLimit& operator=(const ScopedResourceLimit&) = delete;

 private:
  const Resource resource_;
  rlimit before_;
};

// What the next descriptor will be; for RLIMIT_NOFILE.
inline rlim_t LowestFreeDescriptor() {
  return static_cast<rlim_t>(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)).get());
}

// How much address space the process has mapped; for RLIMIT_AS.
inline rlim_t MappedBytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return static_cast<rlim_t>(pages * sysconf(_SC_PAGE_SIZE));
}

}  // namespace crossmesh
