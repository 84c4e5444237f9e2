#include "worker/gpu/process/device_file.h"

#include <cerrno>
#include <fstream>

#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>
#include <fcntl.h>

namespace crossmesh {

absl::StatusOr<UniqueFd> OpenDeviceFile(const std::string& root, const std::string& pci_address) {
  const std::string description =
      absl::StrCat(root, "/proc/driver/nvidia/gpus/", pci_address, "/information");
  int minor = -1;
  std::ifstream lines(description);
  for (std::string line; std::getline(lines, line);) {
    absl::string_view value = line;
    if (absl::ConsumePrefix(&value, "Device Minor:") &&
        !absl::SimpleAtoi(absl::StripAsciiWhitespace(value), &minor)) {
      minor = -1;
    }
  }
  if (minor < 0) {
    return absl::NotFoundError(
        absl::StrCat(description, ": expected a line \"Device Minor: N\", found none"));
  }
  const std::string path = absl::StrCat(root, "/dev/nvidia", minor);
  // Without O_NONBLOCK it would wait for a GPU that hangs.
  UniqueFd file(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return file;
}

}  // namespace crossmesh
