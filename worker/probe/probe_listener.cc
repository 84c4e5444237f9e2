#include "worker/probe/probe_listener.h"

#include "common/base/status_macros.h"
#include "worker/probe/rate_meter.h"
#include "worker/transport/socket/network_interface.h"
#include "worker/transport/socket/tcp_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <sys/socket.h>

namespace crossmesh {
namespace {

// Connections that have not said the token yet: any process can make them.
constexpr size_t kCallersMax = 16;
constexpr size_t kBufferBytes = 256 << 10;

absl::Status Echo(TimedSocket& socket) {
  for (int i = 0; i < kProbeEchoes; ++i) {
    std::array<char, 1> byte = {};
    RETURN_IF_ERROR(socket.Receive(byte));
    RETURN_IF_ERROR(socket.Send(byte));
  }
  return absl::OkStatus();
}

absl::StatusOr<ProbeReport> Count(TimedSocket& socket, const Clock& clock) {
  std::vector<char> buffer(kBufferBytes);
  RateMeter meter(clock.Monotonic());
  while (true) {
    ASSIGN_OR_RETURN(const size_t received, socket.ReceiveSome(buffer));
    if (received == 0) break;
    meter.Add(clock.Monotonic(), static_cast<int64_t>(received));
  }
  return ProbeReport{.received_bytes = meter.bytes(), .bytes_per_second = meter.BytesPerSecond()};
}

}  // namespace

absl::StatusOr<ProbeListener> ProbeListener::Open(const std::string& interface,
                                                  const ProbeToken& token) {
  ASSIGN_OR_RETURN(IpEndpoint endpoint, FindInterface(interface));
  ASSIGN_OR_RETURN(UniqueFd fd, ListenAt(endpoint));
  return ProbeListener(std::move(fd), std::move(endpoint), token);
}

absl::StatusOr<ProbeReport> ProbeListener::Serve(const ProbePatience& patience) {
  ASSIGN_OR_RETURN(UniqueFd fd, WaitForSender(patience));
  listener_.Reset();
  TimedSocket socket(std::move(fd), patience);
  RETURN_IF_ERROR(Echo(socket));
  ASSIGN_OR_RETURN(const ProbeReport report, Count(socket, patience.clock));
  RETURN_IF_ERROR(socket.Send(report.Encode()));
  return report;
}

absl::StatusOr<UniqueFd> ProbeListener::WaitForSender(const ProbePatience& patience) {
  std::vector<Caller> callers;
  while (true) {
    std::vector<pollfd> descriptors = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const Caller& caller : callers) {
      descriptors.push_back({.fd = caller.fd.get(), .events = POLLIN, .revents = 0});
    }
    RETURN_IF_ERROR(WaitForAny(descriptors, patience));
    // From the end, so that those that leave do not move the others.
    for (size_t i = callers.size(); i-- > 0;) {
      if (descriptors[i + 1].revents == 0) continue;
      const bool stays = Listen(callers[i]);
      if (stays && KnowsToken(callers[i])) return std::move(callers[i].fd);
      if (!stays) callers.erase(callers.begin() + static_cast<ptrdiff_t>(i));
    }
    if (descriptors.front().revents == 0) continue;
    // The longest silent one makes room.
    if (callers.size() == kCallersMax) callers.erase(callers.begin());
    if (UniqueFd fd = AcceptAt(listener_.get()); fd.valid()) callers.push_back({std::move(fd)});
  }
}

bool ProbeListener::Listen(Caller& caller) const {
  std::array<char, sizeof(ProbeToken)> bytes = {};
  const ssize_t received =
      recv(caller.fd.get(), bytes.data(), bytes.size() - caller.said.size(), 0);
  if (received < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  caller.said.append(bytes.data(), static_cast<size_t>(received));
  return received > 0 && (caller.said.size() < token_.size() || KnowsToken(caller));
}

bool ProbeListener::KnowsToken(const Caller& caller) const {
  return std::ranges::equal(caller.said, token_);
}

}  // namespace crossmesh
