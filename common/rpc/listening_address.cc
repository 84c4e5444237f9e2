#include "common/rpc/listening_address.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace crossmesh {
namespace {

absl::Status CannotListen(const RpcAddress& address, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", address.ToString(), ": ", why));
}

in_port_t& PortOf(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

// Empty: the error says why.
UniqueFd ListenTcp(const sockaddr_storage& address, absl::Duration silence_max, int& error) {
  const socklen_t size = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  UniqueFd fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) error = errno;
  if (!fd.valid()) return fd;
  const auto set = [&fd](int level, int name, int value) {
    return setsockopt(fd.get(), level, name, &value, sizeof(value)) == 0;
  };
  // Else a port whose connections are still closing would be called taken. What is accepted has the
  // other options as well.
  if (!set(SOL_SOCKET, SO_REUSEADDR, 1) || !set(IPPROTO_TCP, TCP_NODELAY, 1) ||
      !set(IPPROTO_TCP, TCP_USER_TIMEOUT,
           static_cast<int>(absl::ToInt64Milliseconds(silence_max))) ||
      (address.ss_family == AF_INET6 && !set(IPPROTO_IPV6, IPV6_V6ONLY, 0)) ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    error = errno;
    fd.Reset();
  }
  return fd;
}

sockaddr_storage AddressOf(const UniqueFd& fd) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  return bound;
}

// A name may stand for one address twice.
bool IsListenedOn(const sockaddr_storage& address, const ListeningAddress& result) {
  return std::ranges::any_of(result.tcp, [&](const UniqueFd& fd) {
    const sockaddr_storage bound = AddressOf(fd);
    return std::memcmp(&bound, &address, sizeof(bound)) == 0;
  });
}

// Listens on all that can be listened on; with port 0 the system chooses the first one's, and the
// others take it. 0, or the error: that an address is in use, or why none could be listened on.
int ListenOnAll(const addrinfo* all, absl::Duration silence_max, ListeningAddress& result) {
  int error = EADDRNOTAVAIL;
  for (const addrinfo* one = all; one != nullptr; one = one->ai_next) {
    sockaddr_storage address = {};
    std::memcpy(&address, one->ai_addr, one->ai_addrlen);
    PortOf(address) = htons(result.address.port);
    if (IsListenedOn(address, result)) continue;
    UniqueFd fd = ListenTcp(address, silence_max, error);
    if (!fd.valid()) {
      if (error == EADDRINUSE) return error;
      continue;
    }
    sockaddr_storage bound = AddressOf(fd);
    result.address.port = ntohs(PortOf(bound));
    result.tcp.push_back(std::move(fd));
  }
  return result.tcp.empty() ? error : 0;
}

}  // namespace

absl::StatusOr<ListeningAddress> ListenOn(const RpcAddress& address, absl::Duration silence_max) {
  ListeningAddress result = {.address = address};
  if (address.is_unix()) {
    ASSIGN_OR_RETURN(UnixListener listener, UnixListener::Listen(address.unix_path, SOCK_STREAM));
    result.unix_socket.emplace(std::move(listener));
    return result;
  }
  const addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), nullptr, &hints, &found); error != 0) {
    return CannotListen(address, gai_strerror(error));
  }
  const absl::Cleanup release = [found] { freeaddrinfo(found); };
  // A port that the system chose for one address may be taken at the next.
  constexpr int kTriesMax = 8;
  for (int tries = 1;; ++tries) {
    const int error = ListenOnAll(found, silence_max, result);
    if (error == 0) return result;
    if (error != EADDRINUSE) {
      return CannotListen(address, std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
    }
    if (address.port != 0 || tries == kTriesMax) {
      return CannotListen(address, "another server listens there");
    }
    result = {.address = address};
  }
}

}  // namespace crossmesh
