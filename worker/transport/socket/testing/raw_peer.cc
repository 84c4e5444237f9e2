#include "worker/transport/socket/testing/raw_peer.h"

#include "common/base/check.h"
#include "worker/transport/socket/network_interface.h"
#include "worker/transport/socket/process_file.h"
#include "worker/transport/socket/tcp_socket.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr TransportNonce kNonce = {'r', 'a', 'w'};
// Far less than what the runner of tests gives a test, which would not say what was missing.
constexpr std::chrono::milliseconds kPatience(30'000);

void FailAwaiting(absl::string_view what) {
  ADD_FAILURE() << "a raw peer waited " << kPatience.count() << " ms in vain for " << what;
}

// False, and the test fails, when `what` does not come.
bool Await(int fd, short events, absl::string_view what) {
  pollfd wait = {.fd = fd, .events = events};
  int ready = 0;
  while ((ready = poll(&wait, 1, static_cast<int>(kPatience.count()))) < 0) {
    CHECK_EQ(errno, EINTR);
  }
  if (ready == 0) FailAwaiting(what);
  return ready > 0;
}

void MakeBlocking(int fd) { CHECK_EQ(fcntl(fd, F_SETFL, 0), 0); }

}  // namespace

RawPeer RawPeer::To(const std::string& address) {
  RawPeer peer;
  peer.nonce_file_ = *MakeNonceFile(kNonce);
  peer.other_ = *SocketAddress::Decode(address);
  peer.fd_ = *ConnectFrom(*FindInterface("lo"), peer.other_.endpoint);
  Await(peer.fd_.get(), POLLOUT, absl::StrCat("a connection to ", address));
  MakeBlocking(peer.fd_.get());
  return peer;
}

RawPeer RawPeer::Listening() {
  RawPeer peer;
  peer.other_.endpoint = *FindInterface("lo");
  peer.fd_ = *ListenAt(peer.other_.endpoint);
  return peer;
}

void RawPeer::Accept() {
  Await(fd_.get(), POLLIN, "a transport that connects");
  fd_ = AcceptAt(fd_.get());
  CHECK(fd_.valid());
  MakeBlocking(fd_.get());
}

SocketHandshake RawPeer::Handshake() const {
  return {.to = other_.nonce,
          .from = kNonce,
          .nonce_file = {.pid = static_cast<uint32_t>(getpid()),
                         .fd = static_cast<uint32_t>(nonce_file_.get())},
          .number = 1};
}

void RawPeer::Lend(uint64_t region, const RegionFile& file) {
  Send(FrameHeader{.kind = FrameKind::kRegion, .region = region});
  Send(file);
}

void RawPeer::SendBytes(absl::string_view bytes) {
  while (!bytes.empty()) {
    if (!Await(fd_.get(), POLLOUT,
               absl::StrCat("the transport to read, with ", bytes.size(), " bytes to send"))) {
      return;
    }
    const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EAGAIN) continue;
    if (sent < 0) return;  // closed already: WaitClosed is for that
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void RawPeer::WaitDelivered() {
  const SteadyClock::time_point end = SteadyClock::now() + kPatience;
  int on_the_way = 1;
  while (on_the_way > 0) {
    if (SteadyClock::now() > end)
      return FailAwaiting("the other side's system to have what was sent");
    CHECK_EQ(ioctl(fd_.get(), SIOCOUTQ, &on_the_way), 0);
    poll(nullptr, 0, on_the_way > 0 ? 1 : 0);
  }
}

void RawPeer::WaitClosed() {
  const SteadyClock::time_point end = SteadyClock::now() + kPatience;
  std::array<char, 4096> ignored;
  ssize_t read = 1;
  while (read > 0) {
    if (SteadyClock::now() > end) return FailAwaiting("the transport to stop sending");
    if (!Await(fd_.get(), POLLIN, "the transport to close the connection")) return;
    read = recv(fd_.get(), ignored.data(), ignored.size(), 0);
  }
}

void RawPeer::ReadBytes(std::span<std::byte> into) {
  const size_t expected = into.size();
  while (!into.empty()) {
    const std::string what = absl::StrCat("the transport to send ", expected, " bytes, of which ",
                                          expected - into.size(), " came");
    if (!Await(fd_.get(), POLLIN, what)) return;
    const ssize_t read = recv(fd_.get(), into.data(), into.size(), 0);
    if (read <= 0) {
      ADD_FAILURE() << "expected " << what << "; found a connection that is closed";
      return;
    }
    into = into.subspan(static_cast<size_t>(read));
  }
}

}  // namespace crossmesh
