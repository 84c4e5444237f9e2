#include "worker/transport/socket/testing/stream_peer.h"

#include "common/base/check.h"

#include <array>
#include <cerrno>

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace crossmesh {
namespace {

std::array<UniqueFd, 2> MakeSocketPair() {
  std::array<int, 2> ends;
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0)
      << "errno " << errno;
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void LimitSendBuffer(int fd) {
  const int least = 0;
  CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0) << "errno " << errno;
}

}  // namespace

StreamPeer::StreamPeer() {
  std::array<UniqueFd, 2> ends = MakeSocketPair();
  own_ = std::move(ends[0]);
  other_ = std::move(ends[1]);
  // More than tests have on the way, as far as the system allows.
  const int much = 4 << 20;
  CHECK_EQ(setsockopt(own_.get(), SOL_SOCKET, SO_SNDBUF, &much, sizeof(much)), 0);
}

void StreamPeer::Send(absl::string_view bytes) {
  if (bytes.empty()) return;
  EXPECT_EQ(send(own_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()))
      << "errno " << errno;
}

std::string StreamPeer::ReadBytes() {
  std::string all;
  std::array<char, 1 << 16> some;
  ssize_t bytes = 0;
  while ((bytes = recv(own_.get(), some.data(), some.size(), 0)) > 0) {
    all.append(some.data(), static_cast<size_t>(bytes));
  }
  return all;
}

bool StreamPeer::IsClosed() {
  char byte = 0;
  return recv(own_.get(), &byte, 1, MSG_PEEK) == 0;
}

size_t StreamPeer::Unread(int fd) {
  int bytes = 0;
  CHECK_EQ(ioctl(fd, FIONREAD, &bytes), 0) << "errno " << errno;
  return static_cast<size_t>(bytes);
}

size_t StreamPeer::LimitBytesOnTheWay(int fd) {
  LimitSendBuffer(fd);
  const std::array<UniqueFd, 2> ends = MakeSocketPair();
  LimitSendBuffer(ends[0].get());
  const std::string much(1 << 20, 'x');
  const ssize_t taken = send(ends[0].get(), much.data(), much.size(), MSG_NOSIGNAL);
  CHECK(taken > 0) << "errno " << errno;
  return static_cast<size_t>(taken);
}

}  // namespace crossmesh
