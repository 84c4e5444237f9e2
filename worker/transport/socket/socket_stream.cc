#include "worker/transport/socket/socket_stream.h"

#include "worker/transport/pieces.h"
#include "worker/transport/socket/tcp_socket.h"

#include <cerrno>

#include <sys/socket.h>

namespace crossmesh {

absl::Status SocketStream::Work(size_t bytes_max) {
  listed_ = false;
  return DoWork(bytes_max);
}

void SocketStream::End(const absl::Status& why) {
  if (ended()) return;
  fd_.Reset();
  CompleteAll(why);
}

void SocketStream::Unblock() {
  blocked_ = false;
  WantWork();
}

void SocketStream::WantWork() {
  if (listed_) return;
  listed_ = true;
  work_list_.push_back(this);
}

absl::StatusOr<size_t> SocketStream::ReadInto(std::span<const iovec> list) {
  const ssize_t bytes = readv(fd(), list.data(), static_cast<int>(list.size()));
  drained_ = bytes < static_cast<ssize_t>(BytesOf(list));
  if (bytes > 0) return static_cast<size_t>(bytes);
  if (bytes == 0) return absl::UnavailableError("the other side closed the connection");
  if (errno == EAGAIN || errno == EINTR) return 0;
  return SocketError("receiving", errno);
}

absl::StatusOr<size_t> SocketStream::WriteFrom(std::span<const iovec> list) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(list.data());
  message.msg_iovlen = list.size();
  const ssize_t bytes = sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (bytes < 0 && errno != EAGAIN && errno != EINTR) return SocketError("sending", errno);
  const size_t written = bytes < 0 ? 0 : static_cast<size_t>(bytes);
  // What is not full takes everything.
  blocked_ = written < BytesOf(list);
  return written;
}

}  // namespace crossmesh
