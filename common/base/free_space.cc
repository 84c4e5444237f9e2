#include "common/base/free_space.h"

#include <sys/statvfs.h>

namespace crossmesh {

std::optional<int64_t> FreeBytesAt(const std::string& folder) {
  struct statvfs space = {};
  if (statvfs(folder.c_str(), &space) != 0) return std::nullopt;
  return static_cast<int64_t>(space.f_bavail * space.f_frsize);
}

}  // namespace crossmesh
