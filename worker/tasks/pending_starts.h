#pragma once

#include "common/event_loop/event_loop.h"
#include "worker/tasks/start_request.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/time/time.h>

namespace crossmesh {

struct LaidOutPart;

// A start whose destinations are still written for a controller of a lower epoch.
struct PendingStart {
  StartRequest request;
  std::shared_ptr<const LaidOutPart> part;
  std::shared_ptr<TaskCaller> caller;
  std::string awaited;                                        // the operation that writes there
  absl::btree_map<std::string, std::string> lost_peers = {};  // meanwhile: workers, and why
};

// The starts of a worker that wait, each for a bounded time. Confined to the loop.
class PendingStarts {
 public:
  explicit PendingStarts(EventLoop& loop) : loop_(loop) {}

  // None of its key may be there. Calls `late` when it is still there after `wait_max`.
  void Add(PendingStart start, absl::Duration wait_max, absl::AnyInvocable<void()> late);

  // Null when there is none of this key.
  PendingStart* Find(const TaskKey& key);
  // Null as well unless it is `caller` that waits.
  const PendingStart* FindWaiting(const TaskKey& key, const TaskCaller& caller);
  // There must be one.
  PendingStart Take(const TaskKey& key);

  std::vector<TaskKey> keys() const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    PendingStart start;
    TimerId timer;
  };

  EventLoop& loop_;
  absl::btree_map<TaskKey, Entry> entries_;
};

}  // namespace crossmesh
