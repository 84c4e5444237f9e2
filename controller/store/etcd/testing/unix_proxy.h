#pragma once

#include "common/base/clock.h"
#include "common/base/event_fd.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/base/unique_fd.h"
#include "common/base/unix_listener.h"
#include "common/testing/temporary_folder.h"

#include <deque>
#include <list>
#include <string>

#include <absl/time/time.h>

namespace crossmesh {

// Stands between clients and a server on a Unix socket, and does to their connections what networks
// do. Thread-safe.
class UnixProxy {
 public:
  // `target`: the server's path.
  explicit UnixProxy(std::string target);
  ~UnixProxy();

  // "unix:/...", for clients.
  std::string endpoint() const;

  // Nothing passes any more, in either direction, though all connections stay.
  void Hold() { Set(Mode::kHold); }
  // All connections break, and none is made.
  void Cut() { Set(Mode::kCut); }
  void Heal() { Set(Mode::kPass); }
  // What is sent from now on takes so long.
  void Delay(absl::Duration delay);

 private:
  enum class Mode { kPass, kHold, kCut };
  struct Piece {
    absl::Duration due;
    std::string bytes;
  };
  struct Connection {
    UniqueFd ends[2];
    std::deque<Piece> to[2];  // the end of this index
    bool closed = false;
  };

  void Set(Mode mode);
  void Run();
  // On the thread.
  void Wait();
  void Accept();
  void Pass(Connection& connection, absl::Duration delay);
  void Receive(Connection& connection, int from, absl::Duration delay);
  void Deliver(Connection& connection, int to);

  const std::string target_;
  const RealClock clock_;
  const TemporaryFolder folder_;
  UnixListener listener_;
  EventFd wake_;
  std::list<Connection> connections_;  // the thread's

  Mutex mutex_;
  Mode mode_ ABSL_GUARDED_BY(mutex_) = Mode::kPass;
  absl::Duration delay_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace crossmesh
