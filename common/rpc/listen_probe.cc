#include "common/rpc/listen_probe.h"

#include "common/base/unique_fd.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace crossmesh {
namespace {

absl::Status CannotListen(const RpcAddress& address, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", address.ToString(), ": ", why));
}

absl::Status CannotListen(const RpcAddress& address, int error) {
  return CannotListen(address, std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
}

sockaddr_un UnixSocketAddress(const RpcAddress& address) {
  sockaddr_un result = {.sun_family = AF_UNIX, .sun_path = {}};
  address.unix_path.copy(result.sun_path, sizeof(result.sun_path) - 1);
  return result;
}

// Whether `bind` accepts the address now; errno tells why not.
int BindError(const sockaddr* address, socklen_t size) {
  const UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd.get(), address, size) != 0) {
    return errno;
  }
  return 0;
}

}  // namespace

absl::Status RemoveStaleSocket(const RpcAddress& address) {
  struct stat found = {};
  if (lstat(address.unix_path.c_str(), &found) != 0) {
    // Other errors are the listening call's to meet, and to explain.
    return absl::OkStatus();
  }
  if (!S_ISSOCK(found.st_mode)) {
    return CannotListen(address, "expected a socket or no file there, found another file");
  }
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return CannotListen(address, errno);
  const sockaddr_un name = UnixSocketAddress(address);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 ||
      errno != ECONNREFUSED) {
    return CannotListen(address, "another server listens there");
  }
  if (unlink(address.unix_path.c_str()) != 0 && errno != ENOENT) {
    return CannotListen(address, errno);
  }
  return absl::OkStatus();
}

absl::Status ExplainListenFailure(const RpcAddress& address) {
  if (address.is_unix()) {
    const sockaddr_un name = UnixSocketAddress(address);
    const int error = BindError(reinterpret_cast<const sockaddr*>(&name), sizeof(name));
    if (error != 0) return CannotListen(address, error);
    unlink(address.unix_path.c_str());
    return CannotListen(address, "the reason is gone by now");
  }
  const addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int resolved =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (resolved != 0) return CannotListen(address, gai_strerror(resolved));
  const absl::Cleanup release = [found] { freeaddrinfo(found); };
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int error = BindError(one->ai_addr, one->ai_addrlen);
    if (error == EADDRINUSE) return CannotListen(address, "another server listens there");
    if (error != 0) return CannotListen(address, error);
  }
  return CannotListen(address, "the reason is gone by now");
}

}  // namespace crossmesh
