#include "worker/transport/socket/testing/raw_peer.h"

#include "common/base/check.h"
#include "worker/transport/socket/network_interface.h"
#include "worker/transport/socket/process_file.h"
#include "worker/transport/socket/tcp_socket.h"

#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr TransportNonce kNonce = {'r', 'a', 'w'};

void Wait(int fd, short events) {
  pollfd wait = {.fd = fd, .events = events};
  while (poll(&wait, 1, -1) < 0) CHECK_EQ(errno, EINTR);
}

void MakeBlocking(int fd) { CHECK_EQ(fcntl(fd, F_SETFL, 0), 0); }

}  // namespace

RawPeer RawPeer::To(const std::string& address) {
  RawPeer peer;
  peer.nonce_file_ = *MakeNonceFile(kNonce);
  peer.other_ = *SocketAddress::Decode(address);
  peer.fd_ = *ConnectFrom(*FindInterface("lo"), peer.other_.endpoint);
  Wait(peer.fd_.get(), POLLOUT);
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
  Wait(fd_.get(), POLLIN);
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
    const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return;  // closed already: WaitClosed is for that
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void RawPeer::WaitClosed() {
  std::array<char, 4096> ignored;
  while (recv(fd_.get(), ignored.data(), ignored.size(), 0) > 0) {
  }
}

void RawPeer::ReadBytes(std::span<std::byte> into) {
  CHECK_EQ(recv(fd_.get(), into.data(), into.size(), MSG_WAITALL),
           static_cast<ssize_t>(into.size()));
}

}  // namespace crossmesh
