#include "worker/probe/timed_socket.h"

#include "common/base/status_macros.h"
#include "worker/transport/socket/tcp_socket.h"

#include <cerrno>

#include <sys/socket.h>

namespace crossmesh {
namespace {

bool MustWait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

absl::Status WaitForAny(std::vector<pollfd>& descriptors, const ProbePatience& patience) {
  descriptors.push_back({.fd = patience.stop.fd(), .events = POLLIN, .revents = 0});
  int ready = 0;
  do {
    const absl::Duration left = patience.end - patience.clock.Monotonic();
    // Rounded up, so that it does not spin through the last millisecond.
    const int64_t milliseconds =
        absl::ToInt64Milliseconds(std::max(left, absl::ZeroDuration()) + absl::Milliseconds(1));
    ready = left <= absl::ZeroDuration()
                ? 0
                : poll(descriptors.data(), descriptors.size(), static_cast<int>(milliseconds));
  } while (ready < 0 && errno == EINTR);
  const bool stopped = descriptors.back().revents != 0;
  descriptors.pop_back();
  if (ready < 0) return SocketError("poll", errno);
  if (stopped) return absl::CancelledError("the worker stops");
  if (ready == 0) return absl::DeadlineExceededError("nothing more came in time");
  return absl::OkStatus();
}

absl::Status TimedSocket::WaitFor(short events, const ProbePatience& patience) {
  std::vector<pollfd> descriptors = {{.fd = fd(), .events = events, .revents = 0}};
  return WaitForAny(descriptors, patience);
}

// Waits first, even where there is no need to: so a flood notices its end.
absl::StatusOr<size_t> TimedSocket::SendSome(std::span<const char> bytes) {
  while (true) {
    RETURN_IF_ERROR(WaitFor(POLLOUT, patience_));
    const ssize_t sent = send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (!MustWait(errno)) return SocketError("sending a probe", errno);
  }
}

absl::StatusOr<size_t> TimedSocket::ReceiveSome(std::span<char> bytes) {
  while (true) {
    RETURN_IF_ERROR(WaitFor(POLLIN, patience_));
    const ssize_t received = recv(fd(), bytes.data(), bytes.size(), 0);
    if (received >= 0) return static_cast<size_t>(received);
    if (!MustWait(errno)) return SocketError("receiving a probe", errno);
  }
}

absl::Status TimedSocket::Send(std::span<const char> bytes) {
  while (!bytes.empty()) {
    ASSIGN_OR_RETURN(const size_t sent, SendSome(bytes));
    bytes = bytes.subspan(sent);
  }
  return absl::OkStatus();
}

absl::Status TimedSocket::Receive(std::span<char> bytes) {
  while (!bytes.empty()) {
    ASSIGN_OR_RETURN(const size_t received, ReceiveSome(bytes));
    if (received == 0) return absl::UnavailableError("the other end of the probe has closed it");
    bytes = bytes.subspan(received);
  }
  return absl::OkStatus();
}

absl::Status TimedSocket::FinishConnect(absl::Duration end) {
  RETURN_IF_ERROR(WaitFor(POLLOUT, patience_.Until(end)));
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? absl::OkStatus() : SocketError("connecting", error);
}

void TimedSocket::CloseSending() { shutdown(fd(), SHUT_WR); }

}  // namespace crossmesh
