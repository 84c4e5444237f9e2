#include "common/rpc/connection_acceptor.h"

#include "common/base/check.h"
#include "common/base/log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include <absl/status/status.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace crossmesh {
namespace {

// Of one listener before the loop looks at others.
constexpr int kAcceptsAtOnce = 64;

bool IsOfOneConnection(int error) {
  return error == EINTR || error == ECONNABORTED || error == EPROTO || error == ENETDOWN ||
         error == EHOSTDOWN || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ENOPROTOOPT || error == ENONET || error == ETIMEDOUT || error == EPERM;
}

// Of this process, as it is now.
int64_t DescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT32_MAX) return INT32_MAX;
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Create(
    EventLoop& loop, const Clock& clock, std::vector<ListeningAddress> addresses,
    const Options& options) {
  std::unique_ptr<ConnectionAcceptor> result(
      new ConnectionAcceptor(loop, clock, std::move(addresses), options));
  if (!result->epoll_.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  for (const Listener& listener : result->listeners_) {
    if (!result->Watch(listener.fd, 0)) return absl::ErrnoToStatus(errno, "epoll_ctl");
  }
  return result;
}

ConnectionAcceptor::ConnectionAcceptor(EventLoop& loop, const Clock& clock,
                                       std::vector<ListeningAddress> addresses,
                                       const Options& options)
    : loop_(loop),
      clock_(clock),
      addresses_(std::move(addresses)),
      options_(options),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  for (const ListeningAddress& address : addresses_) {
    for (const UniqueFd& fd : address.tcp) listeners_.push_back({.fd = fd.get()});
    if (address.unix_socket.has_value()) {
      listeners_.push_back({.fd = address.unix_socket->fd(), .local = true});
    }
  }
}

ConnectionAcceptor::~ConnectionAcceptor() {
  if (calls_.take) loop_.RemoveSource(*this);
}

void ConnectionAcceptor::Start(Calls calls) {
  calls_ = std::move(calls);
  Listen(true);
  loop_.AddSource(*this);
}

int ConnectionAcceptor::Progress() {
  std::array<epoll_event, 64> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), /*timeout=*/0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    const auto listener = std::find_if(listeners_.begin(), listeners_.end(),
                                       [fd](const Listener& one) { return one.fd == fd; });
    if (listener == listeners_.end()) {
      Hear(fd);
    } else {
      AcceptFrom(*listener);
    }
  }
  return std::max(count, 0);
}

bool ConnectionAcceptor::Watch(int fd, uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void ConnectionAcceptor::Listen(bool listen) {
  // To change what is there takes no memory, so it cannot fail.
  for (const Listener& listener : listeners_) {
    epoll_event event{.events = listen ? uint32_t{EPOLLIN} : 0U, .data = {.fd = listener.fd}};
    CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener.fd, &event), 0) << "errno " << errno;
  }
}

void ConnectionAcceptor::AcceptFrom(const Listener& listener) {
  if (paused_) return;  // since this round began
  const int64_t descriptors_end = DescriptorsEnd(listener);
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    UniqueFd connection(accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      if (IsOfOneConnection(errno)) continue;
      if (errno != EAGAIN) PauseAfter(errno);
      return;
    }
    // The system gives the lowest number that is free, so a high one says how many are in use.
    if (connection.get() < descriptors_end) {
      Await(std::move(connection));
      continue;
    }
    // Closed when this has been told: a client that sees its end may ask.
    ++refused_;
    calls_.refused(ConnectionRefusal::kDescriptors);
    RefuseForDescriptors("few descriptors are left");
  }
}

void ConnectionAcceptor::PauseAfter(int error) {
  RefuseForDescriptors(std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
  paused_ = true;
  Listen(false);
  loop_.RunAfter(options_.retry_pause, [this] {
    paused_ = false;
    Listen(true);
  });
}

void ConnectionAcceptor::Await(UniqueFd connection) {
  if (std::ssize(silent_) >= SilentMax()) EndSilent();
  const int fd = connection.get();
  if (!Watch(fd, EPOLLIN)) {
    calls_.refused(ConnectionRefusal::kDescriptors);
    return;
  }
  silent_.push_back(
      {.connection = std::move(connection), .end = clock_.Monotonic() + options_.silence_max});
  silent_by_fd_.emplace(fd, std::prev(silent_.end()));
  if (silent_.size() == 1) RestartSilenceTimer();
}

void ConnectionAcceptor::Hear(int connection) {
  // Events of one round may be of connections that the round itself has ended.
  const auto found = silent_by_fd_.find(connection);
  if (found == silent_by_fd_.end()) return;
  char byte = 0;
  const ssize_t heard = recv(connection, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (heard < 0 && (errno == EAGAIN || errno == EINTR)) return;
  CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection, nullptr), 0) << "errno " << errno;
  UniqueFd spoken = std::move(found->second->connection);
  silent_.erase(found->second);
  silent_by_fd_.erase(found);
  if (heard > 0) calls_.take(std::move(spoken));
}

void ConnectionAcceptor::EndSilent() {
  silent_by_fd_.erase(silent_.front().connection.get());
  silent_.pop_front();
  calls_.refused(ConnectionRefusal::kSilent);
}

void ConnectionAcceptor::RestartSilenceTimer() {
  loop_.Cancel(silence_timer_);
  silence_timer_ = loop_.RunAfter(silent_.front().end - clock_.Monotonic(), [this] {
    const absl::Duration now = clock_.Monotonic();
    while (!silent_.empty() && silent_.front().end <= now) EndSilent();
    if (!silent_.empty()) RestartSilenceTimer();
  });
}

void ConnectionAcceptor::RefuseForDescriptors(absl::string_view why) {
  refusing_end_ = clock_.Monotonic() + options_.refusing_for;
  if (std::exchange(refusing_, true)) return;
  LogWarning("connections_refused", {{"reason", why}});
  calls_.accepting_changed(false);
  loop_.RunAfter(options_.refusing_for, [this] { EndRefusing(); });
}

void ConnectionAcceptor::EndRefusing() {
  const absl::Duration left = refusing_end_ - clock_.Monotonic();
  if (left > absl::ZeroDuration()) {
    loop_.RunAfter(left, [this] { EndRefusing(); });
    return;
  }
  refusing_ = false;
  LogInfo("connections_accepted_again", {{"refused", std::exchange(refused_, 0)}});
  calls_.accepting_changed(true);
}

int64_t ConnectionAcceptor::SilentMax() const {
  return std::min(options_.silent_max, std::max<int64_t>(DescriptorLimit() / 4, 1));
}

int64_t ConnectionAcceptor::DescriptorsEnd(const Listener& listener) const {
  const int64_t most = DescriptorLimit();
  const int64_t reserve = std::min(options_.reserve, most / 4);
  return most - (listener.local ? reserve / 2 : reserve);
}

}  // namespace crossmesh
