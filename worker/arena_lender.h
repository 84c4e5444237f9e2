#pragma once

#include "common/base/mutex.h"
#include "common/event_loop/event_loop.h"
#include "worker/memory/arena.h"
#include "worker/transport/transport.h"

#include <memory>

namespace crossmesh {

// Lends arenas to a transport, each for as long as there is a copy of it. Thread-safe.
class ArenaLender {
 public:
  struct Ports {
    EventLoop& data;    // drives the transport
    EventLoop& memory;  // where arenas go: that takes a third of a second for a GiB
    Transport& transport;
  };

  // From here to Stop `ports` must live. Before and after, arenas are not lent.
  void Start(const Ports& ports);
  // Once the data loop has stopped. Repeatable.
  void Stop();

  // The same arena. When the last copy of the result goes, the transport is first told to forget
  // it.
  std::shared_ptr<Arena> Lend(std::shared_ptr<Arena> arena);

 private:
  // Also of the arenas that are lent.
  struct Shared {
    Mutex mutex;
    // None: not started, or stopped. Posting under the lock keeps the loops alive meanwhile.
    const Ports* ports ABSL_GUARDED_BY(mutex) = nullptr;
  };
  static void Reclaim(Shared& shared, std::shared_ptr<Arena> arena);

  std::unique_ptr<const Ports> ports_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace crossmesh
