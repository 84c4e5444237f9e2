#include "common/daemon/service_manager.h"

#include "common/base/unique_fd.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string>

#include <absl/strings/str_cat.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace crossmesh {

absl::Status TellServiceManager(absl::string_view state) {
  const char* const variable = std::getenv("NOTIFY_SOCKET");
  if (variable == nullptr) return absl::OkStatus();
  const std::string path = variable;
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.empty() || path.size() > sizeof(address.sun_path)) {
    return absl::UnavailableError(absl::StrCat("NOTIFY_SOCKET \"", path, "\": expected 1 to ",
                                               sizeof(address.sun_path), " bytes, found ",
                                               path.size()));
  }
  path.copy(address.sun_path, path.size());
  // An abstract socket: its name begins with a zero byte, which the variable has as '@'.
  if (path.front() == '@') address.sun_path[0] = '\0';

  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto address_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  if (!fd.valid() ||
      sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&address), address_bytes) != std::ssize(state)) {
    const absl::Status cause = absl::ErrnoToStatus(errno, "cannot be told");
    return absl::UnavailableError(absl::StrCat("NOTIFY_SOCKET \"", path, "\": ", cause.message()));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
