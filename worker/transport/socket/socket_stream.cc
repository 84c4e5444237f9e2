#include "worker/transport/socket/socket_stream.h"

#include "worker/transport/pieces.h"
#include "worker/transport/socket/tcp_socket.h"

#include <cerrno>
#include <csignal>
#include <ctime>

#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

namespace crossmesh {
namespace {

// `sendfile` cannot be told to raise no SIGPIPE, which would end a process that does not ignore it:
// held back from this thread meanwhile.
class HeldSigpipe {
 public:
  HeldSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  HeldSigpipe(const HeldSigpipe&) = delete;
  HeldSigpipe& operator=(const HeldSigpipe&) = delete;
  ~HeldSigpipe() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  // If it was raised, it is not to come when it may again.
  void Drop() {
    const timespec at_once = {};
    sigtimedwait(&sigpipe_, nullptr, &at_once);
  }

 private:
  sigset_t sigpipe_;
  sigset_t before_;
};

}  // namespace

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

absl::StatusOr<size_t> SocketStream::WriteFrom(std::span<const iovec> list, bool more) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(list.data());
  message.msg_iovlen = list.size();
  const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
  const ssize_t bytes = sendmsg(fd(), &message, flags);
  if (bytes < 0 && errno != EAGAIN && errno != EINTR) return SocketError("sending", errno);
  const size_t written = bytes < 0 ? 0 : static_cast<size_t>(bytes);
  // What is not full takes everything.
  blocked_ = written < BytesOf(list);
  return written;
}

std::optional<size_t> SocketStream::WritePages(const FilePart& part) {
  HeldSigpipe held;
  off_t offset = part.offset;
  const ssize_t bytes = sendfile(fd(), part.fd, &offset, part.bytes);
  const int error = bytes < 0 ? errno : 0;
  const size_t written = bytes < 0 ? 0 : static_cast<size_t>(bytes);
  blocked_ = written < part.bytes;
  // The other side may have gone meanwhile: what went before is told, and the error only next time.
  if (blocked_) held.Drop();
  if (error != 0 && error != EAGAIN && error != EINTR) return std::nullopt;
  return written;
}

}  // namespace crossmesh
