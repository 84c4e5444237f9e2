#pragma once

#include "worker/executor/task.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Names a part that is replayed: all of a TaskKey but the instance.
struct ReplayKey {
  uint64_t operation = 0;
  uint64_t epoch = 0;
  uint32_t plan = 0;
  TaskKey OfInstance(uint32_t instance) const { return {operation, epoch, plan, instance}; }
  friend auto operator<=>(const ReplayKey&, const ReplayKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ReplayKey& k) {
    return H::combine(std::move(h), k.operation, k.epoch, k.plan);
  }
};
inline ReplayKey ReplayKeyOf(const TaskKey& key) { return {key.operation, key.epoch, key.plan}; }

// A part with everything that its instances need. Each instance runs in a buffer: memory of its own
// on every device, so that as many may be under way as there are buffers.
struct ReplaySpec {
  struct Buffer {
    absl::flat_hash_map<DeviceRank, BoundTiles> sources;       // of this worker's devices
    absl::flat_hash_map<DeviceRank, BoundTiles> destinations;  // of this worker's devices
    // Of a part with courses: where what each of these devices has between steps begins.
    absl::flat_hash_map<DeviceRank, std::byte*> arrays;
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
  bool leaves_own = false;      // as TaskSpec
  uint32_t first_instance = 0;  // those below it are over
};

// What a buffer's task is made of.
TaskSpec TaskOf(const ReplaySpec& spec, const ReplaySpec::Buffer& buffer);

// Called on the executor's loop, never from inside a call of its methods. The keys that it is told
// have the instance. When a task is done, its buffer is free: nothing reads or writes its memory.
class ReplayObserver : public TaskObserver {
 public:
  // Another worker has told that these replays have failed there, and are over. Instances that wait
  // for it would wait until the stall limit.
  virtual void OnPeerStopped(const ReplayKey& /*key*/, absl::string_view /*worker*/) {}
  // The last call for these replays.
  virtual void OnReplaysStopped(const ReplayKey& key) = 0;
};

}  // namespace crossmesh
