#include "controller/store/etcd/testing/unix_proxy.h"

#include "common/base/check.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kWaitMax = absl::Milliseconds(200);

UnixListener MustListen(const std::string& path) {
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(path, SOCK_STREAM);
  CHECK(listener.ok()) << listener.status();
  return *std::move(listener);
}

EventFd MustMakeEvent() {
  absl::StatusOr<EventFd> event = EventFd::Create();
  CHECK(event.ok()) << event.status();
  return *std::move(event);
}

// Invalid when nothing listens there.
UniqueFd ConnectTo(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  CHECK_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fd.Reset();
  return fd;
}

}  // namespace

UnixProxy::UnixProxy(std::string target)
    : target_(std::move(target)),
      listener_(MustListen(folder_.PathOf("proxy"))),
      wake_(MustMakeEvent()),
      thread_("unix-proxy", [this] { Run(); }) {}

UnixProxy::~UnixProxy() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.Signal();
  thread_.Join();
}

std::string UnixProxy::endpoint() const { return absl::StrCat("unix:", folder_.PathOf("proxy")); }

void UnixProxy::Set(Mode mode) {
  {
    const MutexLock lock(mutex_);
    mode_ = mode;
  }
  wake_.Signal();
}

void UnixProxy::Delay(absl::Duration delay) {
  const MutexLock lock(mutex_);
  delay_ = delay;
}

void UnixProxy::Run() {
  for (;;) {
    Wait();
    Mode mode;
    absl::Duration delay;
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
      mode = mode_;
      delay = delay_;
    }
    if (mode == Mode::kHold) continue;
    Accept();
    if (mode == Mode::kCut) connections_.clear();
    for (Connection& connection : connections_) Pass(connection, delay);
    connections_.remove_if([](const Connection& connection) { return connection.closed; });
  }
}

void UnixProxy::Wait() {
  absl::Duration wait = kWaitMax;
  std::vector<pollfd> polls = {{wake_.fd(), POLLIN, 0}};
  bool holds = false;
  {
    const MutexLock lock(mutex_);
    holds = mode_ == Mode::kHold;
  }
  if (!holds) {
    polls.push_back({listener_.fd(), POLLIN, 0});
    for (const Connection& connection : connections_) {
      for (const int end : {0, 1}) {
        polls.push_back({connection.ends[end].get(), POLLIN, 0});
        if (connection.to[end].empty()) continue;
        wait = std::min(wait, connection.to[end].front().due - clock_.Monotonic());
      }
    }
  }
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(
      std::max(absl::Ceil(wait, absl::Milliseconds(1)), absl::ZeroDuration())));
  ::poll(polls.data(), polls.size(), milliseconds);
  wake_.Drain();
}

void UnixProxy::Accept() {
  for (;;) {
    UniqueFd client(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client.valid()) return;
    UniqueFd server = ConnectTo(target_);
    if (!server.valid()) continue;
    Connection& connection = connections_.emplace_back();
    connection.ends[0] = std::move(client);
    connection.ends[1] = std::move(server);
  }
}

void UnixProxy::Pass(Connection& connection, absl::Duration delay) {
  for (const int end : {0, 1}) {
    Receive(connection, end, delay);
    Deliver(connection, 1 - end);
  }
}

void UnixProxy::Receive(Connection& connection, int from, absl::Duration delay) {
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t size =
        ::recv(connection.ends[from].get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      connection.closed = true;
      return;
    }
    connection.to[1 - from].push_back(
        {clock_.Monotonic() + delay, std::string(buffer.data(), size)});
  }
}

void UnixProxy::Deliver(Connection& connection, int to) {
  std::deque<Piece>& pieces = connection.to[to];
  while (!pieces.empty() && pieces.front().due <= clock_.Monotonic()) {
    absl::string_view bytes = pieces.front().bytes;
    while (!bytes.empty()) {
      const ssize_t sent =
          ::send(connection.ends[to].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) {
        connection.closed = true;
        return;
      }
      bytes.remove_prefix(sent);
    }
    pieces.pop_front();
  }
}

}  // namespace crossmesh
