#pragma once

#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/event_loop/event_loop.h"
#include "common/event_loop/event_source.h"
#include "common/event_loop/timer_id.h"
#include "common/metrics/label_set.h"
#include "common/rpc/listening_address.h"

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Accepts connections, and hands each one over when its client has said something. gRPC's own
// listener accepts no more once the process has run out of descriptors; this one tries again.
//
// What connections can take is bounded. Of those that are silent there are so many, for so long: a
// further one ends the oldest. So many that thousands of workers that come back at once, on busy
// machines, all get to their first word: who is ended before it comes again, and if all do, few
// ever get through. A connection that would leave the process too few descriptors for what else it
// does is closed at once. Confined to the loop; constructed before it starts and destroyed after it
// has stopped.
class ConnectionAcceptor final : public EventSource {
 public:
  struct Options {
    // Or a quarter of the limit of descriptors when that is less.
    int64_t silent_max = 16384;
    absl::Duration silence_max = absl::Seconds(10);
    // Descriptors below the soft limit that connections leave free, or a quarter of the limit when
    // that is less. Of Unix sockets half of it, so that an administrator of the machine gets in.
    int64_t reserve = 64;
    absl::Duration retry_pause = absl::Milliseconds(100);
    // How long after the last connection was closed for want of descriptors they count as refused.
    absl::Duration refusing_for = absl::Seconds(1);
  };
  // Called on the loop.
  struct Calls {
    std::function<void(UniqueFd connection)> take;
    std::function<void(ConnectionRefusal reason)> refused;  // one connection was closed
    std::function<void(bool accepting)> accepting_changed;  // are there descriptors?
  };

  // ResourceExhausted: no descriptors or no memory left. `loop` and `clock` outlive it; `clock` is
  // the loop's.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Create(
      EventLoop& loop, const Clock& clock, std::vector<ListeningAddress> addresses,
      const Options& options);
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;
  ~ConnectionAcceptor() override;

  // Begins to accept. Once, before the loop starts.
  void Start(Calls calls);

  int Progress() override;
  int event_fd() const override { return epoll_.get(); }

 private:
  struct Listener {
    int fd = UniqueFd::kNone;
    bool local = false;
  };
  struct Silent {
    UniqueFd connection;
    absl::Duration end;
  };

  ConnectionAcceptor(EventLoop& loop, const Clock& clock, std::vector<ListeningAddress> addresses,
                     const Options& options);

  // False: the system has no memory.
  bool Watch(int fd, uint32_t events);
  void Listen(bool listen);
  void AcceptFrom(const Listener& listener);
  // Not every error is one of this moment only, so all listeners wait before they try again.
  void PauseAfter(int error);
  void Await(UniqueFd connection);
  // What the client has said, or that it is gone.
  void Hear(int connection);
  void EndSilent();
  void RestartSilenceTimer();
  void RefuseForDescriptors(absl::string_view why);
  void EndRefusing();
  int64_t SilentMax() const;
  // The first descriptor number that a connection may not have.
  int64_t DescriptorsEnd(const Listener& listener) const;

  EventLoop& loop_;
  const Clock& clock_;
  const std::vector<ListeningAddress> addresses_;
  const Options options_;
  const UniqueFd epoll_;
  std::vector<Listener> listeners_;
  Calls calls_;
  bool paused_ = false;  // no listener is watched

  // In the order in which they were accepted, which is that of their ends.
  std::list<Silent> silent_;
  std::map<int, std::list<Silent>::iterator> silent_by_fd_;
  TimerId silence_timer_;

  // While connections are refused for want of descriptors.
  bool refusing_ = false;
  absl::Duration refusing_end_;
  int64_t refused_ = 0;
};

}  // namespace crossmesh
