#include "worker/transport/socket/tcp_socket.h"

#include "common/base/log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace crossmesh {
namespace {

constexpr int kBacklog = 1024;
// A host that fell silent is lost after so long, whether something is on its way to it or not. So
// is one whose other end has not read for so long what is there for it. Longer than stall limits
// usually are, which end what a task waits for: a sender whose packets full queues drop one time
// after the other pauses for seconds without being gone.
constexpr int kSilenceMaxMs = 20'000;
constexpr int kKeepaliveSeconds = 5;
constexpr int kKeepaliveProbes = 3;
// The longest such pause, in which a link that works again is found as well. By TCP_RTO_MAX_MS,
// which Linux has since 6.15, and the headers not yet.
constexpr int kRetransmitMaxMs = 1000;
constexpr int kRetransmitMaxOption = 44;
// Every Linux has it and lets everybody choose it, and it does not pace.
constexpr absl::string_view kUnpaced = "reno";
constexpr size_t kIpv4Offset = 12;

// An endpoint as the system has it.
struct SystemAddress {
  explicit SystemAddress(const IpEndpoint& endpoint) {
    if (endpoint.is_ipv4()) {
      auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
      v4.sin_family = AF_INET;
      v4.sin_port = htons(endpoint.port);
      std::memcpy(&v4.sin_addr, endpoint.ip.data() + kIpv4Offset, sizeof(v4.sin_addr));
      length = sizeof(v4);
    } else {
      auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(endpoint.port);
      std::memcpy(&v6.sin6_addr, endpoint.ip.data(), sizeof(v6.sin6_addr));
      length = sizeof(v6);
    }
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }

  sockaddr_storage storage = {};
  socklen_t length = 0;
};

// One end of a connection: this one by getsockname, the other by getpeername.
std::optional<IpEndpoint> EndpointOf(int fd, int (*get_name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (get_name(fd, address, &length) != 0) return std::nullopt;
  return ToEndpoint(address);
}

void SetOption(int fd, int level, int option, int value) {
  // What the system does not know it does without.
  static_cast<void>(setsockopt(fd, level, option, &value, sizeof(value)));
}

// Inside a host the system tells at once when a process ends; there a limit could only strike one
// that is merely slow.
void LimitSilence(int fd) {
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kSilenceMaxMs);
  SetOption(fd, IPPROTO_TCP, kRetransmitMaxOption, kRetransmitMaxMs);
}

// Inside a host no network can be congested, and what paces for it, as BBR does, only costs timers:
// docs/adr/0065-no-pacing-inside-a-host.md. A system that refuses keeps its own.
void SendUnpaced(int fd) {
  static_cast<void>(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(), kUnpaced.size()));
}

void SetUp(int fd, const IpEndpoint& own, const IpEndpoint& other) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (own.ip == other.ip) {
    SendUnpaced(fd);
  } else {
    LimitSilence(fd);
  }
}

void BindTo(const std::string& interface, int fd) {
  if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, interface.data(), interface.size()) == 0) return;
  LogWarning("socket_interface_not_bound",
             {{"interface", interface}, {"reason", std::strerror(errno)}});
}

UniqueFd OpenSocket(const IpEndpoint& endpoint) {
  return UniqueFd(socket(endpoint.is_ipv4() ? AF_INET : AF_INET6,
                         SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

absl::Status SocketError(absl::string_view doing, int error) {
  return absl::UnavailableError(absl::StrCat(doing, ": ", std::strerror(error)));
}

std::optional<IpEndpoint> ToEndpoint(const sockaddr* address) {
  IpEndpoint endpoint;
  if (address == nullptr) return std::nullopt;
  if (address->sa_family == AF_INET) {
    const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
    endpoint.ip[10] = endpoint.ip[11] = '\xff';
    std::memcpy(endpoint.ip.data() + kIpv4Offset, &v4.sin_addr, sizeof(v4.sin_addr));
    endpoint.port = ntohs(v4.sin_port);
    return endpoint;
  }
  if (address->sa_family == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) return std::nullopt;
    std::memcpy(endpoint.ip.data(), &v6.sin6_addr, sizeof(v6.sin6_addr));
    endpoint.port = ntohs(v6.sin6_port);
    return endpoint;
  }
  return std::nullopt;
}

absl::StatusOr<UniqueFd> ListenAt(IpEndpoint& at) {
  const std::string doing = absl::StrCat("listening at ", at.ToString());
  UniqueFd fd = OpenSocket(at);
  if (!fd.valid()) return SocketError(doing, errno);
  const SystemAddress address(at);
  if (bind(fd.get(), address.get(), address.length) != 0 || listen(fd.get(), kBacklog) != 0) {
    return SocketError(doing, errno);
  }
  const std::optional<IpEndpoint> bound = EndpointOf(fd.get(), &getsockname);
  if (!bound.has_value()) return SocketError(doing, errno);
  at.port = bound->port;
  return fd;
}

absl::StatusOr<UniqueFd> ConnectFrom(const IpEndpoint& from, const IpEndpoint& to,
                                     const std::string& interface) {
  const std::string doing = absl::StrCat("connecting to ", to.ToString());
  UniqueFd fd = OpenSocket(to);
  if (!fd.valid()) return SocketError(doing, errno);
  if (from.is_ipv4() != to.is_ipv4()) return SocketError(doing, EAFNOSUPPORT);
  SetUp(fd.get(), from, to);
  if (!interface.empty()) BindTo(interface, fd.get());
  // The system chooses the port when it knows the other end, of which there may be many.
  SetOption(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  IpEndpoint source = from;
  source.port = 0;
  const SystemAddress own(source);
  if (bind(fd.get(), own.get(), own.length) != 0) return SocketError(doing, errno);
  const SystemAddress address(to);
  if (connect(fd.get(), address.get(), address.length) == 0) return fd;
  switch (errno) {
    case EADDRNOTAVAIL:
    case EHOSTUNREACH:
    case EINVAL:
    case ENETUNREACH:
      return SocketError(doing, errno);
    default:
      return fd;
  }
}

std::string OtherSide(int fd) {
  const std::optional<IpEndpoint> other = EndpointOf(fd, &getpeername);
  return other.has_value() ? other->ToString() : "somebody who has gone";
}

UniqueFd AcceptAt(int listener) {
  UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) return fd;
  const std::optional<IpEndpoint> own = EndpointOf(fd.get(), &getsockname);
  const std::optional<IpEndpoint> other = EndpointOf(fd.get(), &getpeername);
  SetUp(fd.get(), own.value_or(IpEndpoint()), other.value_or(IpEndpoint()));
  return fd;
}

}  // namespace crossmesh
