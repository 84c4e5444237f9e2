#pragma once

#include <cstdint>
#include <string>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// What a planner's thread is to do.
struct PlanningRequest {
  std::string client;  // for which it is done: as gRPC names the peer of its call
  int64_t cost = 0;    // an estimate, as PlanningCost counts
  // Called once: with OK on a planner's thread when it is the request's turn, or else with the
  // reason why it has none.
  absl::AnyInvocable<void(const absl::Status& turn)> work;
};

// Where work is left to be done by the planners' threads. Implementations are thread-safe and call
// work without holding a lock; nothing here blocks.
class PlanningQueue {
 public:
  virtual ~PlanningQueue() = default;

  // A request that is not taken is told so before this returns: ResourceExhausted when too many
  // wait, Unavailable when the queue has stopped.
  virtual void Post(PlanningRequest request) = 0;
  // What a request of this client would be told now, or OK: for callers that have work to do before
  // they post one, which is for nothing when it is not taken.
  virtual absl::Status CheckRoom(const std::string& client) const = 0;

  // How long the request had waited that got its turn last; zero before the first.
  virtual absl::Duration last_wait() const = 0;
};

// About how long a reshard takes to plan, in some tenths of a microsecond: every tensor may have
// a slicing of its own on all slots of both sides, and every slot may send to every other one.
inline int64_t PlanningCost(int64_t tensors, int64_t slots) { return (tensors + slots) * slots; }

}  // namespace crossmesh
