#pragma once

#include "worker/executor/task.h"

#include <compare>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Names a part that is replayed: all of a TaskKey but the instance.
struct ReplayKey {
  uint64_t operation = 0;
  uint64_t epoch = 0;
  uint32_t attempt = 0;
  TaskKey OfInstance(uint32_t instance) const { return {operation, epoch, attempt, instance}; }
  friend auto operator<=>(const ReplayKey&, const ReplayKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ReplayKey& k) {
    return H::combine(std::move(h), k.operation, k.epoch, k.attempt);
  }
};
inline ReplayKey ReplayKeyOf(const TaskKey& key) { return {key.operation, key.epoch, key.attempt}; }

// A part with everything that its instances need. Each instance runs in a buffer: memory of its own
// on every device, so that as many may be under way as there are buffers.
struct ReplaySpec {
  struct Buffer {
    absl::flat_hash_map<DeviceRank, BoundTiles> sources;       // of this worker's devices
    absl::flat_hash_map<DeviceRank, BoundTiles> destinations;  // of this worker's devices
  };

  ReplayKey key;
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  std::shared_ptr<const PreparedPart> part;
  std::vector<Buffer> buffers;  // at least one
  std::vector<TaskPeer> peers;
  absl::flat_hash_map<DeviceRank, int32_t> peer_of_device;  // other workers' devices -> peers index
  bool checksums = true;
  absl::Duration stall_limit = absl::Seconds(5);
  uint32_t first_instance = 0;  // those below are of the past
};

// Called on the executor's loop, never from inside a call of its methods. The keys that it is told
// have the instance. When a task is done, its buffer is free: nothing reads or writes its memory.
class ReplayObserver : public TaskObserver {
 public:
  // The last call for these replays.
  virtual void OnReplaysStopped(const ReplayKey& key) = 0;
};

// Runs a part again and again without allocating or connecting anew: the transfers of a pipeline,
// once for each microbatch. The receivers of an instance say when they have memory for it, and only
// then its senders send; until both have, nobody is blamed for waiting, but a peer that answers no
// question for the stall limit is. Nobody bounds how long an instance takes: its owner does, by
// Stop. Confined to the loop.
class ReplayRunner {
 public:
  virtual ~ReplayRunner() = default;

  // Connects, and takes all memory that instances need. Those that were stopped can be started
  // again once they are stopped at every worker. AlreadyExists when such replays run;
  // InvalidArgument as Executor::Start, without buffers, and for a part that computes scales.
  // `observer` must outlive them.
  virtual absl::Status StartReplays(ReplaySpec spec, ReplayObserver& observer) = 0;
  // Begins an instance in a buffer that is free, in ascending order of instances. Its destination
  // tiles may be written from now on, and its sources are awaited. Does nothing when these replays
  // are not known, or are being stopped.
  virtual void Replay(const ReplayKey& key, int32_t buffer, uint32_t instance) = 0;
  // The source tiles of all this worker's devices are filled. Does nothing when the instance is not
  // under way.
  virtual void ReplaySourceHere(const ReplayKey& key, uint32_t instance) = 0;
  // Ends what is under way, with `why` as the status of every device not complete yet. What is sent
  // for an instance below `next_instance`, now or later, is dropped. Does nothing when these
  // replays are not known.
  virtual void StopReplays(const ReplayKey& key, const absl::Status& why,
                           uint32_t next_instance) = 0;
};

}  // namespace crossmesh
