#include "tests/standin/driver/device_life.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>

namespace crossmesh {

DeviceLife::DeviceLife(int number) {
  const char* const root = std::getenv("CROSSMESH_STANDIN_NO_PERSISTENCE");
  if (root == nullptr) return;
  const std::string device = absl::StrCat(root, "/dev/nvidia", number);
  const std::string lives = absl::StrCat(root, "/lives", number);
  std::error_code error;
  std::filesystem::create_directories(absl::StrCat(root, "/dev"), error);
  mkfifo(device.c_str(), S_IRUSR | S_IWUSR);
  // Fails while no process could read what is written.
  const bool is_open = UniqueFd(open(device.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)).valid();
  device_.Reset(open(device.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!is_open) std::ofstream(lives, std::ios::app) << '.';
  number_ = static_cast<int64_t>(std::filesystem::file_size(lives, error));
}

}  // namespace crossmesh
