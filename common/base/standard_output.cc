#include "common/base/standard_output.h"

#include <cerrno>
#include <iostream>

namespace crossmesh {

absl::Status WriteToStandardOutput(absl::string_view text) {
  errno = 0;
  std::cout << text << std::flush;
  if (std::cout) return absl::OkStatus();
  return absl::ErrnoToStatus(errno == 0 ? EIO : errno, "cannot write to standard output");
}

}  // namespace crossmesh
